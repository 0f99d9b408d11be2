{# Tables and views, in the commits that readers and streams expect. #}

{% materialization view, adapter='streamhouse' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='view') -%}
  {{ run_hooks(pre_hooks) }}
  {%- if existing is not none and not existing.is_view %}{{ adapter.drop_relation(existing) }}{% endif %}
  {% call statement('main') -%}{{ get_create_view_as_sql(target, sql) }}{%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# A table keeps its history: one commit replaces its rows, unless its declaration changes. #}
{% materialization table, adapter='streamhouse' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {%- set create = create_table_as(False, target, sql) -%}
  {%- set kept = existing is not none and existing.is_table and not should_full_refresh()
    and adapter.is_declared_as(existing, create) -%}
  {%- if existing is not none and not kept %}{{ adapter.drop_relation(existing) }}{% endif %}
  {% call statement('main') -%}
    {% if kept %}INSERT OVERWRITE {{ target.render() }} {{ sql }}{% else %}{{ create }}{% endif %}
  {%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# Rows are added; with `unique_key`, the primary key of the table, they replace those of their key. #}
{% materialization incremental, adapter='streamhouse' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks) }}
  {%- set kept = existing is not none and existing.is_table and not should_full_refresh() -%}
  {%- if existing is not none and not kept %}{{ adapter.drop_relation(existing) }}{% endif %}
  {% call statement('main') -%}
    {% if kept %}INSERT INTO {{ target.render() }} {{ sql }}
    {%- else %}{{ create_table_as(False, target, sql) }}{% endif %}
  {%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro streamhouse__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {# `load_csv_rows` replaces the rows. #}
  {%- if full_refresh %}{{ adapter.drop_relation(old_relation) }}{{ return(create_csv_table(model, agate_table)) }}{% endif -%}
  {{ return('') }}
{% endmacro %}

{% macro streamhouse__load_csv_rows(model, agate_table) %}
  {%- set kinds = model['config'].get('column_types', {}) -%}
  {%- set names = agate_table.column_names -%}
  {%- set types = [] -%}
  {%- for name in names %}{% do types.append(kinds.get(name, adapter.convert_type(agate_table, loop.index0))) %}{% endfor -%}
  {%- set sql -%}
    INSERT OVERWRITE {{ this.render() }} ({{ streamhouse__names(names) }}) VALUES
    {%- for row in agate_table.rows %}
      ({%- for value in row -%}{{ adapter.literal(value, types[loop.index0]) }}{{ ', ' if not loop.last }}{%- endfor -%}){{ ',' if not loop.last }}
    {%- endfor %}
  {%- endset -%}
  {% do adapter.add_query(sql, abridge_sql_log=True) %}
  {{ return(sql) }}
{% endmacro %}
