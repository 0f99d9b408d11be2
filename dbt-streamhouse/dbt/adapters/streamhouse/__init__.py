"""The dbt adapter `streamhouse`."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.streamhouse.connections import Credentials
from dbt.adapters.streamhouse.impl import StreamhouseAdapter
from dbt.include import streamhouse

Plugin = AdapterPlugin(
    adapter=StreamhouseAdapter, credentials=Credentials, include_path=streamhouse.PACKAGE_PATH
)
