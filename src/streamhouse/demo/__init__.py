"""The demos: revenue per country, and the membership warehouse, with a private MariaDB."""
