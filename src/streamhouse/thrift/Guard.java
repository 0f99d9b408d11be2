package streamhouse;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import javax.security.sasl.AuthenticationException;
import org.apache.hive.service.auth.PasswdAuthenticationProvider;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.command.CreateViewCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Restricts clients of the Thrift server: they log in with the password, and only read.
 *
 * <p>Janino, a part of Spark, compiles it when the server starts: no lambdas, no Scala generics.
 * It lists what is allowed, so that it refuses commands that a later version of Spark adds.
 */
public class Guard {
  private static final Set COMMANDS = new HashSet(Arrays.asList(new Object[] {
    "CommandResult", "CreateVariable", "DescribeColumn", "DescribeColumnCommand",
    "DescribeDatabaseCommand", "DescribeFunction", "DescribeFunctionCommand", "DescribeNamespace",
    "DescribeQueryCommand", "DescribeRelation", "DescribeTableCommand", "DropTempViewCommand",
    "DropVariable", "ExplainCommand", "ResetCommand", "SetCatalogAndNamespace",
    "SetCatalogCommand", "SetNamespaceCommand", "SetVariable", "ShowCatalogsCommand",
    "ShowColumns", "ShowColumnsCommand", "ShowCreateTable", "ShowCreateTableCommand",
    "ShowCurrentNamespaceCommand", "ShowFunctions", "ShowFunctionsCommand", "ShowNamespaces",
    "ShowNamespacesCommand", "ShowPartitions", "ShowTableProperties",
    "ShowTablePropertiesCommand", "ShowTables", "ShowTablesCommand", "ShowViews",
    "ShowViewsCommand"}));
  private static final Set LEAVES = new HashSet(Arrays.asList(new Object[] {
    "CTERelationRef", "CommandResult", "LocalRelation", "OneRowRelation", "Range",
    "ResolvedIdentifier", "ResolvedNamespace", "ResolvedNonPersistentFunc",
    "ResolvedPersistentView", "ResolvedTable", "ResolvedTempView"}));
  private static final Set SETTINGS = new HashSet(Arrays.asList(new Object[] {
    "spark.sql.adaptive.enabled", "spark.sql.ansi.enabled",
    "spark.sql.autoBroadcastJoinThreshold", "spark.sql.binaryOutputStyle",
    "spark.sql.broadcastTimeout",
    "spark.sql.caseSensitive", "spark.sql.crossJoin.enabled",
    "spark.sql.datetime.java8API.enabled", "spark.sql.hive.version",
    "spark.sql.legacy.timeParserPolicy", "spark.sql.mapKeyDedupPolicy",
    "spark.sql.session.timeZone", "spark.sql.shuffle.partitions",
    "spark.sql.thriftServer.incrementalCollect", "spark.sql.thriftserver.scheduler.pool"}));

  private static volatile byte[] digest = new byte[0];

  /** Sets the SHA-256 of the password, in hexadecimal digits. */
  public void password(String hexadecimal) {
    digest = new BigInteger(hexadecimal, 16).toByteArray();
  }

  /** Restricts all sessions that are derived from this one from now on. */
  public void confine(SparkSession session) {
    Map base = settings(session.newSession());
    SparkSessionExtensions extensions =
        ((org.apache.spark.sql.classic.SparkSession) session).extensions();
    extensions.injectParser(new Parsers(base));
    extensions.injectCheckRule(new Checks());
  }

  static Map settings(SparkSession session) {
    Map result = new HashMap();
    scala.collection.Iterator all = session.conf().getAll().iterator();
    while (all.hasNext()) {
      scala.Tuple2 entry = (scala.Tuple2) all.next();
      result.put(entry._1(), entry._2());
    }
    return result;
  }

  static SecurityException refused(String what) {
    return new SecurityException(
        what + " is not allowed here: this server only reads its tables and views");
  }

  /** Checks the password; any user name is accepted. */
  public static class Password implements PasswdAuthenticationProvider {
    public void Authenticate(String user, String password) throws AuthenticationException {
      byte[] actual;
      try {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        String text = password == null ? "" : password;
        actual = sha.digest(text.getBytes(StandardCharsets.UTF_8));
      } catch (java.security.NoSuchAlgorithmException error) {
        throw new AuthenticationException("there is no SHA-256", error);
      }
      if (!MessageDigest.isEqual(new BigInteger(1, actual).toByteArray(), digest)) {
        try {
          Thread.sleep(1000L);
        } catch (InterruptedException error) {
          Thread.currentThread().interrupt();
        }
        throw new AuthenticationException("the password is wrong");
      }
    }
  }

  /** Creates the parser of a session, which checks the session's settings before each statement. */
  public static class Parsers extends scala.runtime.AbstractFunction2 {
    private final Map base;

    Parsers(Map base) {
      this.base = base;
    }

    public Object apply(Object session, Object parser) {
      return Proxy.newProxyInstance(
          ParserInterface.class.getClassLoader(),
          new Class[] {ParserInterface.class},
          new Parser(base, (SparkSession) session, parser));
    }
  }

  /** Refuses all statements of a session whose settings could give access to other data. */
  public static class Parser implements InvocationHandler {
    private final Map base;
    private final SparkSession session;
    private final Object parser;

    Parser(Map base, SparkSession session, Object parser) {
      this.base = base;
      this.session = session;
      this.parser = parser;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (method.getName().startsWith("parsePlan")) {
        check();
      }
      try {
        return method.invoke(parser, arguments);
      } catch (InvocationTargetException error) {
        throw error.getCause();
      }
    }

    private void check() {
      java.util.Iterator all = settings(session).entrySet().iterator();
      while (all.hasNext()) {
        Map.Entry entry = (Map.Entry) all.next();
        String key = (String) entry.getKey();
        boolean unchanged = entry.getValue().equals(base.get(key));
        if (key.startsWith("spark.") && !unchanged && !SETTINGS.contains(key)) {
          throw refused("the setting " + key + " of this connection");
        }
      }
    }
  }

  /** Creates the check of a session. */
  public static class Checks extends scala.runtime.AbstractFunction1 {
    public Object apply(Object session) {
      return new Check();
    }
  }

  /** Refuses analyzed plans that do more than read the served tables and views. */
  public static class Check extends scala.runtime.AbstractFunction1 {
    public Object apply(Object plan) {
      check((LogicalPlan) plan);
      return scala.runtime.BoxedUnit.UNIT;
    }

    private void check(LogicalPlan plan) {
      String name = plan.getClass().getSimpleName();
      if (plan instanceof Command) {
        checkCommand(plan, name);
      } else if (plan.children().isEmpty()) {
        checkLeaf(plan, name);
      } else if (name.contains("Script") || name.contains("Insert")) {
        throw refused(name);
      }
      scala.collection.Iterator children = plan.children().iterator();
      while (children.hasNext()) {
        check((LogicalPlan) children.next());
      }
      scala.collection.Iterator expressions = plan.expressions().iterator();
      while (expressions.hasNext()) {
        check((Expression) expressions.next());
      }
    }

    private void checkCommand(LogicalPlan plan, String name) {
      if (plan instanceof SetCommand) {
        checkSetting(((SetCommand) plan).kv());
      } else if (plan instanceof CreateViewCommand) {
        // Only this connection sees the view; a query that reads it is checked, too.
        String kind = ((CreateViewCommand) plan).viewType().toString();
        if (!kind.startsWith("LocalTempView")) {
          throw refused(name);
        }
      } else if (!COMMANDS.contains(name)) {
        throw refused(name);
      }
    }

    private void checkSetting(scala.Option assignment) {
      if (assignment.isEmpty()) {
        return;
      }
      scala.Tuple2 pair = (scala.Tuple2) assignment.get();
      boolean sets = ((scala.Option) pair._2()).isDefined();
      if (sets && !SETTINGS.contains(pair._1())) {
        throw refused("SET " + pair._1());
      }
    }

    private void checkLeaf(LogicalPlan plan, String name) {
      if (plan instanceof DataSourceV2Relation) {
        String table = ((DataSourceV2Relation) plan).table().getClass().getName();
        if (!table.contains(".python.")) {
          throw refused("reading " + ((DataSourceV2Relation) plan).name());
        }
      } else if (!LEAVES.contains(name)) {
        throw refused("reading by " + name);
      }
    }

    private void check(Expression expression) {
      String name = expression.getClass().getName();
      if (name.contains("Reflect") || !name.startsWith("org.apache.spark.sql.catalyst.")) {
        throw refused("the function " + expression.prettyName());
      }
      if (expression instanceof PlanExpression) {
        Object plan = ((PlanExpression) expression).plan();
        if (plan instanceof LogicalPlan) {
          check((LogicalPlan) plan);
        }
      }
      scala.collection.Iterator children = expression.children().iterator();
      while (children.hasNext()) {
        check((Expression) children.next());
      }
    }
  }
}
