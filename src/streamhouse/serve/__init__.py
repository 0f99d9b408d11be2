"""Live views: tables of a warehouse as streams of changes, without a JVM."""
