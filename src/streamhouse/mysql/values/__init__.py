"""Values of MySQL columns: types, encodings, and conversion to Arrow; imports no connection."""
