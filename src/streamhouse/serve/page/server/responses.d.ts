// The types of the server's responses, as serve.http.models and streamhouse.graph.model define
// them. The server does not send this file to browsers.

/** A JSON value; `parse` returns integers beyond the safe range as BigInt. */
export type Json = string | number | bigint | boolean | null | Json[] | JsonObject;

export interface JsonObject {
  [name: string]: Json;
}

/** A value of a row; undefined if the row lacks the column. */
export type Cell = Json | undefined;

/** A row by column names; rows of a stream also have a `rowkind`. */
export interface Row {
  [name: string]: Cell;
}

export interface TypedColumn {
  name: string;
  /** In Flink's syntax. */
  type: string;
}

export interface Column extends TypedColumn {
  nullable: boolean;
}

/** The chart of a view, from the server's views file. */
export interface ChartSettings {
  type: "bars" | "lines" | "none";
  x?: string;
  y?: string[];
  title?: string;
}

export interface ViewRecord {
  name: string;
  kind: "table" | "view";
  materialized: boolean;
  title: string | null;
  description: string | null;
  /** Empty if there is an `error`. */
  columns: Column[];
  primary_key: string[];
  partitioned_by: string[];
  snapshot: number | null;
  time: string | null;
  /** Null if counting them would take too long. */
  rows: number | null;
  chart: ChartSettings | null;
  error?: string;
}

/** `etag` is the header ETag. */
export interface ViewsResponse {
  views: ViewRecord[];
  etag?: string;
}

/** The rows of one snapshot; `snapshot` and `time` are null for a table without commits. */
export interface RowsResponse {
  snapshot: number | null;
  time: string | null;
  rows: Row[];
  etag?: string;
}

export interface SqlResponse {
  columns: TypedColumn[];
  rows: Row[];
  truncated: boolean;
}

export interface SnapshotRecord {
  snapshot: number;
  time: string;
  kind: string;
  rows: number | null;
  delta_rows: number | null;
  schema: number;
}

export interface SnapshotsResponse {
  snapshots: SnapshotRecord[];
}

export interface Limits {
  query_seconds: number;
  query_rows: number;
}

/** Without a token, a server that requires one sends only the first two. */
export interface Health {
  status: "ok" | "failing";
  token_needed: boolean;
  warehouse?: string;
  views?: number | null;
  uptime_seconds?: number;
  allow_run?: boolean;
  sees_pipelines?: boolean;
  limits?: Limits;
  version?: string;
}

/** An error; for SQL with line and column, which count from 1. */
export interface ErrorBody {
  code: string;
  message: string;
  line?: number | null;
  column?: number | null;
}

/** An event of a stream, or a part of one: `more` means that other parts follow. */
export interface RowsMessage {
  type: "snapshot" | "changes";
  id?: string | null;
  snapshot: number | null;
  time: string | null;
  rows: Row[];
  more: boolean;
}

export type StreamMessage =
  | RowsMessage
  | { type: "heartbeat"; id?: string | null }
  | { type: "overflow"; message: string; last_id: string | null }
  | { type: "error"; error: ErrorBody };

/** How far a query is behind its source; null if the source does not report it. */
export interface Lag {
  seconds: number | null;
  rows: number | null;
  snapshots: number | null;
  bytes: number | null;
  /** Committed rows that streams do not see before a compaction. */
  waiting_rows: number | null;
}

export interface QueryRecord {
  name: string;
  target: string;
  sources: string[];
  lookups: string[];
  rows_per_second: number;
  rows: number;
  batches: number;
  last_batch: string | null;
  last_batch_ms: number | null;
  strategy: "incremental" | "recomputed";
  /** The last refresh of a recomputed view; `current`: no input is newer. */
  refresh: { seconds: number; age_seconds: number; current: boolean | null } | null;
  /** The size of what a view keeps, or of looked-up tables in a process; null for others. */
  state_bytes: number | null;
  /** The rows of a view; null if unknown, and for other queries. */
  view_rows: number | null;
  lag: Lag | null;
  /** Of its source, by the names of Flink, Flink CDC and Debezium. */
  metrics: Record<string, number | string>;
  last_error: string | null;
}

export interface MaintenanceRecord {
  busy: number;
  failures: number;
  last_error: string | null;
  last_error_time: string | null;
}

export interface PipelineRecord {
  name: string;
  state: "running" | "stopped" | "failed";
  pid: number | null;
  host: string;
  started: string;
  updated: string;
  ended: string | null;
  script: string | null;
  /** Whether a server started it, and can restart it. */
  startable: boolean;
  restarts: number;
  last_error: string | null;
  last_error_time: string | null;
  queries: QueryRecord[];
  maintenance: MaintenanceRecord | null;
}

export interface PipelinesResponse {
  pipelines: PipelineRecord[];
}

/** A table or a view; `layer` is the layer of the warehouse that its name begins with. */
export interface TableNode {
  id: string;
  kind: "source" | "table" | "view";
  name: string;
  layer: string | null;
  details: string[];
}

/** A statement that moves rows, and its position in the script. */
export interface QueryNode {
  id: string;
  kind: "continuous" | "bounded" | "console";
  name: string;
  file: string | null;
  line: number;
  details: string[];
  /** The tree of operators of a view, in lines. */
  plan: string[];
}

export type GraphNode = TableNode | QueryNode;

export interface GraphEdge {
  from: string;
  to: string;
  kind: "reads" | "writes" | "looks up";
  label: string;
}

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

/** The result of checking a script. */
export type CheckResult =
  | { ok: true; statements: number; graph: Graph }
  | { ok: false; error: { message: string; line: number | null; column: number | null } };
