"""Tables of some kinds are compacted by a JVM after each statement: the tests share it."""

from tests.java_pool import java_pool, lent_java

__all__ = ["java_pool", "lent_java"]
