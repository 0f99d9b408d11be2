import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.table.test.program.FailingSqlTestStep;
import org.apache.flink.table.test.program.FunctionTestStep;
import org.apache.flink.table.test.program.SinkTestStep;
import org.apache.flink.table.test.program.SourceTestStep;
import org.apache.flink.table.test.program.SqlTestStep;
import org.apache.flink.table.test.program.StatementSetTestStep;
import org.apache.flink.table.test.program.TableTestProgram;
import org.apache.flink.table.test.program.TableTestStep;
import org.apache.flink.table.test.program.TestStep;
import org.apache.flink.types.Row;

/**
 * Prints Flink's test programs of table queries, found in the jars given as arguments, as one JSON
 * object a line: {"class", "id", "steps"}. Each step has a "kind", and what that kind has: "sql",
 * or a table's "name", "schema", rows, and what they are expected to be. Part of the long tests.
 */
public class FlinkTestPrograms {
    public static void main(String[] jars) throws Exception {
        for (String jar : jars) {
            List<String> names;
            try (JarFile file = new JarFile(jar)) {
                names = file.stream()
                        .map(entry -> entry.getName())
                        .filter(name -> name.endsWith("TestPrograms.class"))
                        .map(name -> name.replace('/', '.').replaceAll("\\.class$", ""))
                        .sorted()
                        .collect(Collectors.toList());
            }
            for (String name : names) {
                print(name);
            }
        }
    }

    private static void print(String name) {
        Field[] fields;
        try {
            fields = Class.forName(name).getDeclaredFields();
        } catch (Throwable failure) {
            System.err.println(name + ": " + failure);
            return;
        }
        Arrays.sort(fields, Comparator.comparing(Field::getName));
        for (Field field : fields) {
            if (field.getType() != TableTestProgram.class || !Modifier.isStatic(field.getModifiers())) {
                continue;
            }
            try {
                field.setAccessible(true);
                TableTestProgram program = (TableTestProgram) field.get(null);
                List<Object> steps = new ArrayList<>();
                program.setupSteps.forEach(step -> steps.add(step(step)));
                program.runSteps.forEach(step -> steps.add(step(step)));
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("class", name.substring(name.lastIndexOf('.') + 1));
                line.put("id", program.id);
                line.put("steps", steps);
                System.out.println(json(line));
            } catch (Throwable failure) {
                System.err.println(name + "." + field.getName() + ": " + failure);
            }
        }
    }

    private static Map<String, Object> step(TestStep step) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("kind", step.getKind().name());
        if (step instanceof TableTestStep) {
            TableTestStep table = (TableTestStep) step;
            out.put("name", table.name);
            out.put("schema", table.schemaComponents);
        }
        if (step instanceof SourceTestStep) {
            SourceTestStep source = (SourceTestStep) step;
            out.put("rows", List.of(source.dataBeforeRestore, source.dataAfterRestore));
        } else if (step instanceof SinkTestStep) {
            SinkTestStep sink = (SinkTestStep) step;
            out.put("expected", sink.getExpectedAsStrings());
            out.put("before", sink.getExpectedBeforeRestoreAsStrings());
            out.put("materialized", sink.getExpectedMaterializedResultsAsStrings());
        } else if (step instanceof SqlTestStep) {
            out.put("sql", ((SqlTestStep) step).sql);
        } else if (step instanceof FailingSqlTestStep) {
            out.put("sql", ((FailingSqlTestStep) step).sql);
        } else if (step instanceof StatementSetTestStep) {
            out.put("statements", ((StatementSetTestStep) step).statements);
        } else if (step instanceof FunctionTestStep) {
            out.put("name", ((FunctionTestStep) step).name);
        }
        return out;
    }

    /** A value as JSON: rows are {"row", "kind"}, maps are {"map": [[key, value], …]}. */
    private static String json(Object value) {
        if (value == null || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Row) {
            Row row = (Row) value;
            List<Object> fields = new ArrayList<>();
            if (row.getFieldNames(true) != null) {
                row.getFieldNames(true).forEach(name -> fields.add(row.getField(name)));
            } else {
                IntStream.range(0, row.getArity()).forEach(i -> fields.add(row.getField(i)));
            }
            String kind = json(row.getKind().shortString());
            return "{\"kind\": " + kind + ", \"row\": " + json(fields) + "}";
        }
        if (value instanceof List) {
            return joined((List<?>) value, FlinkTestPrograms::json, "[", "]");
        }
        if (value instanceof Object[]) {
            return json(Arrays.asList((Object[]) value));
        }
        if (value instanceof byte[]) {
            return "{\"bytes\": " + json(Base64.getEncoder().encodeToString((byte[]) value)) + "}";
        }
        if (value instanceof Map && ((Map<?, ?>) value).keySet().stream().allMatch(
                key -> List.of("class", "id", "steps", "kind", "name", "schema", "rows", "expected",
                        "before", "materialized", "sql", "statements").contains(key))
                && value instanceof LinkedHashMap) {
            Function<Map.Entry<?, ?>, String> pair =
                    entry -> json(entry.getKey()) + ": " + json(entry.getValue());
            return joined(List.copyOf(((Map<?, ?>) value).entrySet()), pair, "{", "}");
        }
        if (value instanceof Map) {
            Map<Object, Object> sorted = new TreeMap<>(Comparator.comparing(String::valueOf));
            sorted.putAll((Map<?, ?>) value);
            List<Object> pairs = new ArrayList<>();
            sorted.forEach((key, one) -> pairs.add(Arrays.asList(key, one)));
            return "{\"map\": " + json(pairs) + "}";
        }
        return quoted(String.valueOf(value));
    }

    private static <T> String joined(
            List<? extends T> values, Function<? super T, String> text, String start, String end) {
        return values.stream().map(text).collect(Collectors.joining(", ", start, end));
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            out.append(c < 32 || c > 126 || c == '"' || c == '\\'
                    ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return out.append('"').toString();
    }
}
