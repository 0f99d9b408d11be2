"""The statements of gh-ost and pt-online-schema-change, in their order, without the tools."""

from __future__ import annotations

import threading
import time
from typing import Any

from streamhouse.demo.mariadb import MariaDB

_COPY_S = 0.5
"""How long the copy goes on beside the writes."""


class OnlineSchemaChanges:
    """Alters tables of one database, which have the columns `id`, `name` and `v`."""

    def __init__(self, server: MariaDB, database: str) -> None:
        self._server, self._database = server, database

    def gh_ost(self, table: str, alter: str, two_step: bool = False) -> None:
        """Copy, then swap: atomically behind a sentry table, or in two renames."""
        new, old, log = f"_{table}_gho", f"_{table}_del", f"_{table}_ghc"
        session, other = self._session(), self._session()
        run = self._run
        for name in (new, old, log):
            run(session, f"drop /* gh-ost */ table if exists `{name}`")
        run(
            session,
            f"create /* gh-ost */ table `{log}` (id bigint unsigned auto_increment, "
            "last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, "
            "hint varchar(64) charset ascii not null, value varchar(4096) charset ascii not null, "
            "primary key(id), unique key hint_uidx(hint)) auto_increment=256 comment='gh-ost'",
            f"create /* gh-ost */ table `{new}` like `{table}`",
            f"alter /* gh-ost */ table `{new}` {alter}",
            f"insert /* gh-ost */ into `{log}` (id, hint, value) values (NULLIF(1, 0), "
            "'heartbeat', NOW()) on duplicate key update last_update=NOW(), value=VALUES(value)",
            f"insert /* gh-ost */ ignore into `{new}` (id, name, v) (select id, name, v from "
            f"`{table}` force index (`PRIMARY`) lock in share mode)",
        )
        time.sleep(_COPY_S)
        # What the tool applies from the binlog, at once.
        equal = (
            f"replace /* gh-ost */ into `{new}` (id, name, v) select id, name, v from `{table}`",
            f"delete /* gh-ost */ from `{new}` where id not in (select id from `{table}`)",
        )
        if two_step:
            run(session, f"lock /* gh-ost */ tables `{table}` write, `{new}` write", *equal)
            run(session, f"alter /* gh-ost */ table `{table}` rename `{old}`", "unlock tables")
            run(session, f"alter /* gh-ost */ table `{new}` rename `{table}`")
        else:
            run(
                session,
                f"create /* gh-ost */ table `{old}` (id int auto_increment primary key) "
                "engine=InnoDB comment='ghost-cut-over-sentry'",
                f"lock /* gh-ost */ tables `{table}` write, `{old}` write, `{new}` write",
                *equal,
            )
            swap = f"rename /* gh-ost */ table `{table}` to `{old}`, `{new}` to `{table}`"
            waiting = threading.Thread(target=run, args=(other, swap))
            waiting.start()
            time.sleep(_COPY_S)
            run(session, f"drop /* gh-ost */ table if exists `{old}`", "unlock tables")
            waiting.join()
        for name in (log, old):
            run(session, f"drop /* gh-ost */ table if exists `{name}`")
        session.close()
        other.close()

    def pt_osc(self, table: str, alter: str) -> None:
        """Triggers copy the changes, one statement the rows; then one RENAME swaps."""
        new, session = f"_{table}_new", self._session()
        with session.cursor() as cursor:
            cursor.execute(f"SHOW CREATE TABLE `{table}`")
            definition = cursor.fetchone()[1]
        write = f"REPLACE INTO `{new}` (id, name, v) VALUES (NEW.id, NEW.name, NEW.v)"
        run, trigger = self._run, f"CREATE TRIGGER `pt_osc_{self._database}_{table}"
        run(
            session,
            definition.replace(f"CREATE TABLE `{table}`", f"CREATE TABLE `{new}`", 1),
            f"ALTER TABLE `{new}` {alter}",
            f"{trigger}_del` AFTER DELETE ON `{table}` FOR EACH ROW DELETE IGNORE FROM `{new}` "
            f"WHERE `{new}`.id <=> OLD.id",
            f"{trigger}_upd` AFTER UPDATE ON `{table}` FOR EACH ROW BEGIN DELETE IGNORE FROM "
            f"`{new}` WHERE !(OLD.id <=> NEW.id) AND `{new}`.id <=> OLD.id; {write}; END",
            f"{trigger}_ins` AFTER INSERT ON `{table}` FOR EACH ROW {write}",
        )
        time.sleep(_COPY_S)
        run(
            session,
            f"INSERT LOW_PRIORITY IGNORE INTO `{new}` (id, name, v) SELECT id, name, v FROM "
            f"`{table}` FORCE INDEX(`PRIMARY`) LOCK IN SHARE MODE "
            "/*pt-online-schema-change 4711 copy nibble*/",
            f"ANALYZE TABLE `{new}` /* pt-online-schema-change */",
            f"RENAME TABLE `{table}` TO `_{table}_old`, `{new}` TO `{table}`",
            f"DROP TABLE IF EXISTS `_{table}_old`",
            *(
                f"DROP TRIGGER IF EXISTS `pt_osc_{self._database}_{table}_{one}`"
                for one in ("del", "upd", "ins")
            ),
        )
        session.close()

    def _session(self) -> Any:
        return self._server.connect(self._database)

    @staticmethod
    def _run(session: Any, *statements: str) -> None:
        with session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
