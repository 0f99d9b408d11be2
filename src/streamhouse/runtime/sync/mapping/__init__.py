"""How a MySQL table maps to its Paimon table: columns, keys, computed columns, rows."""
