{# A materialized view: any SELECT, which `streamhouse run` keeps up to date. #}

{% materialization materialized_view, adapter='streamhouse' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type=this.MaterializedView) -%}
  {{ run_hooks(pre_hooks) }}
  {%- if existing is not none and (should_full_refresh() or not existing.is_materialized_view) %}
    {{ adapter.drop_relation(existing) }}
  {%- endif %}
  {% call statement('define') -%}
    CREATE OR REPLACE MATERIALIZED VIEW {{ target.render() }}
    {{- streamhouse__clauses(config.get('primary_key')) }}
    {%- if config.get('freshness') %} FRESHNESS = INTERVAL '{{ config.get('freshness').split(' ')[0] }}' {{ config.get('freshness').split(' ')[1] }}{% endif %}
    AS {{ sql }}
  {%- endcall %}
  {# Without a pipeline that runs the view, this computes its rows. #}
  {% call statement('main') -%}
    {% if config.get('refresh', true) %}ALTER MATERIALIZED VIEW {{ target.render() }} REFRESH{% endif %}
  {%- endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
