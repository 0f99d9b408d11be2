"""The membership warehouse: a business in MySQL, four layers of tables, two boards."""
