{# `dbt run-operation streamhouse_script` writes the materialized views of the project as a script,
   which `streamhouse run` keeps up to date. #}

{% macro streamhouse_script(path='views.sql') %}
  {%- set views = adapter.write_script(path, graph.nodes) -%}
  {%- do log(path ~ ': ' ~ views ~ ' materialized views; `streamhouse run ' ~ path ~ '` keeps them up to date', info=true) -%}
{% endmacro %}
