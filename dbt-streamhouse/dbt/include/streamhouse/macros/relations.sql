{# Statements of Streamhouse for relations of dbt. #}

{% macro streamhouse__create_schema(relation) -%}
  {% call statement('create_schema') %}
    CREATE DATABASE IF NOT EXISTS {{ relation.without_identifier().render() }}
  {% endcall %}
{%- endmacro %}

{% macro streamhouse__drop_schema(relation) -%}
  {% call statement('drop_schema') %}
    DROP DATABASE IF EXISTS {{ relation.without_identifier().render() }} CASCADE
  {% endcall %}
{%- endmacro %}

{% macro streamhouse__drop_table(relation) -%}
  DROP TABLE IF EXISTS {{ relation.render() }}
{%- endmacro %}

{% macro streamhouse__drop_view(relation) -%}
  DROP VIEW IF EXISTS {{ relation.render() }}
{%- endmacro %}

{% macro streamhouse__drop_materialized_view(relation) -%}
  DROP MATERIALIZED VIEW IF EXISTS {{ relation.render() }}
{%- endmacro %}

{% macro streamhouse__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation') %}
    ALTER TABLE {{ from_relation.render() }} RENAME TO {{ to_relation.render() }}
  {% endcall %}
{%- endmacro %}

{% macro streamhouse__truncate_relation(relation) -%}
  {% call statement('truncate_relation') %}
    TRUNCATE TABLE {{ relation.render() }}
  {% endcall %}
{%- endmacro %}

{% macro streamhouse__current_timestamp() -%}
  CURRENT_TIMESTAMP
{%- endmacro %}

{% macro streamhouse__create_view_as(relation, sql) -%}
  CREATE OR REPLACE VIEW {{ relation.render() }} AS {{ sql }}
{%- endmacro %}

{# The clauses before AS of a table or materialized view, as the model's config has them. #}
{% macro streamhouse__clauses(key) -%}
  {%- set key = [key] if key is string else key -%}
  {%- set partition = config.get('partition_by') -%}
  {%- set partition = [partition] if partition is string else partition -%}
  {%- if key %} ({{ streamhouse__primary_key(key) }}){% endif -%}
  {%- if config.persist_relation_docs() and model.description %} COMMENT '{{ model.description | replace("'", "''") }}'{% endif -%}
  {%- if partition %} PARTITIONED BY ({{ streamhouse__names(partition) }}){% endif -%}
  {%- if config.get('options') %} WITH (
    {%- for name, value in config.get('options').items() -%}
      '{{ name }}' = '{{ value }}'{{ ', ' if not loop.last }}
    {%- endfor -%}
  ){% endif -%}
{%- endmacro %}

{% macro streamhouse__primary_key(key) -%}
  PRIMARY KEY ({{ streamhouse__names(key) }}) NOT ENFORCED
{%- endmacro %}

{% macro streamhouse__names(names) -%}
  {%- for name in names %}{{ adapter.quote(name) }}{{ ', ' if not loop.last }}{% endfor -%}
{%- endmacro %}

{% macro streamhouse__create_table_as(temporary, relation, sql) -%}
  CREATE TABLE {{ relation.render() }}
  {{- streamhouse__clauses(config.get('primary_key') or config.get('unique_key')) }} AS {{ sql }}
{%- endmacro %}
