"""What pipelines tell of themselves: metrics, status files and logs."""
