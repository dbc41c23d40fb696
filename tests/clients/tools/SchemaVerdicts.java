import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.pulsar.broker.service.schema.AvroSchemaCompatibilityCheck;
import org.apache.pulsar.broker.service.schema.JsonSchemaCompatibilityCheck;
import org.apache.pulsar.broker.service.schema.SchemaCompatibilityCheck;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.protocol.schema.SchemaData;
import org.apache.pulsar.common.schema.SchemaType;

/**
 * Apache Pulsar's own judgement of schemas. A line is STRATEGY, TYPE, the new definition and those before it, oldest first, with tabs
 * between; the answer is a line with "=compatible", or "=" and what is thrown. Other lines are logs.
 */
public final class SchemaVerdicts {
    private static final SchemaCompatibilityCheck AVRO = new AvroSchemaCompatibilityCheck();
    private static final SchemaCompatibilityCheck JSON = new JsonSchemaCompatibilityCheck();

    private SchemaVerdicts() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("=" + verdict(line.split("\t")));
        }
    }

    private static String verdict(String[] words) {
        SchemaCompatibilityStrategy strategy = SchemaCompatibilityStrategy.valueOf(words[0]);
        SchemaType type = SchemaType.valueOf(words[1]);
        SchemaCompatibilityCheck check = type == SchemaType.AVRO ? AVRO : JSON;
        List<SchemaData> before = new ArrayList<>();
        for (int index = 3; index < words.length; index++) {
            before.add(data(type, words[index]));
        }
        try {
            // As the broker's schema registry asks: all versions only where the strategy looks back at all of them.
            if (words[0].endsWith("_TRANSITIVE")) {
                check.checkCompatible(before, data(type, words[2]), strategy);
            } else {
                check.checkCompatible(before.get(before.size() - 1), data(type, words[2]), strategy);
            }
            return "compatible";
        } catch (Throwable thrown) {
            return String.valueOf(thrown).replace('\n', ' ');
        }
    }

    private static SchemaData data(SchemaType type, String definition) {
        return SchemaData.builder().type(type).data(definition.getBytes(StandardCharsets.UTF_8)).build();
    }
}
