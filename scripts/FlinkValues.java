import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Prints the value of each SQL expression of the standard input as a line of JSON. */
public class FlinkValues {
    private static final int CHUNK = 120;
    private static TableEnvironment env;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Configuration options = new Configuration();
        options.setString("rest.bind-port", "0");
        options.setString("rest.address", "localhost");
        options.setString("taskmanager.memory.network.min", "64m");
        options.setString("taskmanager.memory.network.max", "64m");
        MiniClusterConfiguration configuration =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(options)
                        .setNumTaskManagers(1)
                        .setNumSlotsPerTaskManager(2)
                        .build();
        MiniCluster cluster = new MiniCluster(configuration);
        cluster.start();
        options.setString("execution.target", "remote");
        options.setString("rest.port", String.valueOf(cluster.getRestAddress().get().getPort()));
        env =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance()
                                .inBatchMode()
                                .withConfiguration(options)
                                .build());
        env.getConfig().set("parallelism.default", "1");
        env.getConfig().set("table.local-time-zone", "UTC");
        List<String> expressions = new ArrayList<>();
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            expressions.add(line.replace((char) 1, '\n'));
        }
        for (int start = 0; start < expressions.size(); start += CHUNK) {
            int end = Math.min(expressions.size(), start + CHUNK);
            List<String> chunk = expressions.subList(start, end);
            List<String> errors = new ArrayList<>();
            List<String> valid = new ArrayList<>();
            for (String expression : chunk) {
                String error = validated(expression);
                errors.add(error);
                if (error == null) {
                    valid.add(expression);
                }
            }
            List<String> values = new ArrayList<>();
            evaluate(valid, values);
            int next = 0;
            for (String error : errors) {
                out.println(error == null ? values.get(next++) : error);
            }
            out.flush();
        }
        System.exit(0);
    }

    private static String validated(String expression) {
        try {
            env.sqlQuery("SELECT " + expression);
            return null;
        } catch (Throwable error) {
            return error(error);
        }
    }

    private static String error(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        String text = String.valueOf(cause.getMessage()).split("\n")[0];
        return "{\"error\": " + quoted(cause.getClass().getSimpleName() + ": " + text) + "}";
    }

    private static void evaluate(List<String> expressions, List<String> out) {
        if (expressions.isEmpty()) {
            return;
        }
        StringBuilder sql = new StringBuilder("SELECT ");
        for (int i = 0; i < expressions.size(); i++) {
            sql.append(i == 0 ? "" : ", ").append(expressions.get(i)).append(" AS c").append(i);
        }
        try (CloseableIterator<Row> rows = env.executeSql(sql.toString()).collect()) {
            Row row = rows.next();
            for (int i = 0; i < expressions.size(); i++) {
                out.add(json(row.getField(i)));
            }
        } catch (Throwable error) {
            if (expressions.size() == 1) {
                out.add(error(error));
                return;
            }
            int middle = expressions.size() / 2;
            evaluate(expressions.subList(0, middle), out);
            evaluate(expressions.subList(middle, expressions.size()), out);
        }
    }

    private static String json(Object value) {
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder();
        if (value instanceof Row) {
            Row row = (Row) value;
            Object[] fields = new Object[row.getArity()];
            for (int i = 0; i < fields.length; i++) {
                fields[i] = row.getField(i);
            }
            return json(fields);
        }
        if (value instanceof Map) {
            List<String> entries = new ArrayList<>();
            ((Map<?, ?>) value).forEach((k, v) -> entries.add("[" + json(k) + ", " + json(v) + "]"));
            entries.sort(null);
            return "{\"map\": [" + String.join(", ", entries) + "]}";
        }
        if (value instanceof byte[]) {
            for (byte b : (byte[]) value) {
                text.append(String.format("%02x", b));
            }
            return quoted(text.toString());
        }
        if (value instanceof Object[]) {
            List<String> items = new ArrayList<>();
            for (Object item : (Object[]) value) {
                items.add(json(item));
            }
            return "[" + String.join(", ", items) + "]";
        }
        if (value instanceof BigDecimal) {
            return quoted(((BigDecimal) value).toPlainString());
        }
        return quoted(value.toString());
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 32 || c > 126) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
