"""Tests of scripts: YAML files of given and expected rows, run without Spark and servers."""
