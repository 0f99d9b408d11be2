"""The options of `streamhouse serve`, as types of its parameters."""

from __future__ import annotations

from typing import Annotated

import typer

ViewsOption = Annotated[
    str | None,
    typer.Option(
        "--views",
        metavar="FILE",
        help="Serve only the views in this YAML file. Default: all tables and views.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="The address to listen on; one that other machines can reach needs a token.",
    ),
]
TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Tokens, one per line, or YAML with the permissions of each. The environment "
        "variable STREAMHOUSE_TOKEN can hold one more token.",
    ),
]
TlsCertOption = Annotated[
    str | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Use HTTPS, with the certificate chain in this PEM file.",
    ),
]
TlsKeyOption = Annotated[
    str | None,
    typer.Option("--tls-key", metavar="FILE", help="The certificate's private key, in PEM."),
]
AllowRunOption = Annotated[
    bool,
    typer.Option(
        "--allow-run", help="Let clients start and stop pipelines, which run on this machine."
    ),
]
AllowOriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="URL",
        help="Allow requests from web pages of this origin (CORS); can be repeated.",
    ),
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Check followed tables this often. Default: 50ms, object stores 500ms.",
    ),
]
HeartbeatOption = Annotated[
    str,
    typer.Option(metavar="DURATION", help="Send an idle stream a heartbeat this often."),
]
QueueOption = Annotated[
    int,
    typer.Option("--queue", min=1, help="Disconnect a stream's reader that lags this many events."),
]
MaxRowsOption = Annotated[
    int, typer.Option("--max-rows", min=1, help="The maximum rows of one response.")
]
QueryTimeoutOption = Annotated[
    str, typer.Option("--query-timeout", metavar="DURATION", help="The time limit of a query.")
]
QueryRowsOption = Annotated[
    int, typer.Option("--query-rows", min=1, help="The maximum rows of a query's result.")
]
QueryMemoryOption = Annotated[
    str, typer.Option("--query-memory", metavar="SIZE", help="The memory limit of a query.")
]
AnswersOption = Annotated[
    str,
    typer.Option(
        "--answers",
        metavar="SIZE",
        help="The maximum size of all responses that clients have not yet received.",
    ),
]
SendTimeoutOption = Annotated[
    str,
    typer.Option(
        "--send-timeout",
        metavar="DURATION",
        help="Disconnect a client that receives nothing of its response for this long.",
    ),
]
QueriesOption = Annotated[
    int, typer.Option("--queries", min=1, help="The maximum number of concurrent queries.")
]
MaxConnectionsOption = Annotated[
    int, typer.Option("--max-connections", min=1, help="The maximum number of connections.")
]
MaxPerAddressOption = Annotated[
    int,
    typer.Option(
        "--max-per-address",
        min=0,
        help="The maximum number of connections per address; 0: no limit.",
    ),
]
RateOption = Annotated[
    float,
    typer.Option(
        "--rate",
        min=0,
        help="Requests per second and client, by token or address; 0: no limit.",
    ),
]
LogOption = Annotated[
    str,
    typer.Option("--log", metavar="FORMAT", help="The log, a line per request: text, json or off."),
]
