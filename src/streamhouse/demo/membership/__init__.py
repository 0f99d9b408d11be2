"""The membership demo: orders in MySQL, a warehouse of four layers of tables, two dashboards."""
