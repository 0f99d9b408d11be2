"""The tables and views of a warehouse over Spark's Thrift server, for clients of JDBC and ODBC."""
