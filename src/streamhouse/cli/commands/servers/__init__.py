"""Commands that serve a warehouse to clients: `serve` over HTTP, `thrift` over JDBC and ODBC."""
