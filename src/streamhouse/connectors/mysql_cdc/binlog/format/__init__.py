"""The binary format of the binlog: event headers, table maps, row images, compression."""
