"""`streamhouse` as a process whose queries run in threads instead of Spark.

For tests of what a killed process leaves: the same planner, tasks, commits and checkpoints, without
a JVM and Python workers, which take ten seconds of a processor to start.
"""

from tests.integration.differential.local_run import without_spark

from streamhouse.cli.main import main

if __name__ == "__main__":
    with without_spark():
        main()
