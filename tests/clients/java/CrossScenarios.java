import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.SchemaDefinition;

/** What one client published the others consume: the cases are those of cross_client.py. */
final class CrossScenarios {
    private static final int COUNT = 10;

    private CrossScenarios() {}

    public static final class Person {
        public int age;
        public String name;
    }

    private interface Content<T> {
        T of(int number);
    }

    private interface Same<T> {
        boolean are(T found, T wanted);
    }

    /** What a case publishes and how it is compared. */
    private record Case<T>(String name, Schema<T> schema, int count, Content<T> content, Same<T> same) {}

    static void registerAll() {
        Program.register("cross_publish", CrossScenarios::publish);
        Program.register("cross_consume", CrossScenarios::consume);
    }

    private static List<Case<?>> cases(World world) {
        boolean snappy = !world.name.endsWith("-go");
        List<String> plain = new ArrayList<>();
        for (String kind : List.of("none", "lz4", "zlib", "zstd", "snappy")) {
            if (snappy || !kind.equals("snappy")) {
                plain.add(kind + "-single");
                plain.add(kind + "-batched");
            }
        }
        plain.add("keyed");
        List<Case<?>> cases = new ArrayList<>();
        for (String name : plain) {
            cases.add(new Case<>(name, Schema.BYTES, COUNT, number -> (name + "-" + number).getBytes(), Arrays::equals));
        }
        byte[] big = new byte[6 << 20];
        for (int index = 0; index < big.length; index++) {
            big[index] = (byte) index;
        }
        cases.add(new Case<>("chunked", Schema.BYTES, 1, number -> big, Arrays::equals));
        SchemaDefinition<Person> definition = SchemaDefinition.<Person>builder().withPojo(Person.class).withAlwaysAllowNull(false).build();
        cases.add(new Case<>("json", Schema.JSON(definition), COUNT, number -> person("json", number), CrossScenarios::samePerson));
        cases.add(new Case<>("avro", Schema.AVRO(definition), COUNT, number -> person("avro", number), CrossScenarios::samePerson));
        return cases;
    }

    private static Person person(String name, int age) {
        Person person = new Person();
        person.age = age;
        person.name = name + "-" + age;
        return person;
    }

    private static boolean samePerson(Person found, Person wanted) {
        return found.age == wanted.age && found.name.equals(wanted.name);
    }

    private static void publish(World world) throws Exception {
        for (Case<?> each : cases(world)) {
            publish(world, each);
        }
    }

    private static <T> void publish(World world, Case<T> work) throws Exception {
        String name = work.name();
        ProducerBuilder<T> builder = world.client.newProducer(work.schema()).topic(world.topic + "-" + name).enableBatching(false);
        if (name.equals("keyed")) {
            builder.enableBatching(true).batcherBuilder(BatcherBuilder.KEY_BASED);
        } else if (name.equals("chunked")) {
            builder.enableChunking(true);
        } else if (name.contains("-")) {
            String[] words = name.split("-");
            builder.compressionType(CompressionType.valueOf(words[0].toUpperCase())).enableBatching(words[1].equals("batched"));
        }
        try (Producer<T> producer = builder.create()) {
            for (int number = 0; number < work.count(); number++) {
                T content = work.content().of(number);
                producer.newMessage().value(content).property("n", "" + number).key("k" + number % 3).sendAsync();
            }
            producer.flush();
        }
    }

    private static void consume(World world) throws Exception {
        for (Case<?> each : cases(world)) {
            consume(world, each);
        }
    }

    private static <T> void consume(World world, Case<T> work) throws Exception {
        List<Integer> found = new ArrayList<>();
        try (Consumer<T> consumer = world.client.newConsumer(work.schema())
                .topic(world.topic + "-" + work.name())
                .subscriptionName("java")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            for (Message<T> message : World.take(consumer, work.count())) {
                int number = Integer.parseInt(message.getProperty("n"));
                String what = work.name() + " " + number;
                World.same(message.getKey(), "k" + number % 3);
                World.isTrue(work.same().are(message.getValue(), work.content().of(number)), what + " is as it was published");
                found.add(number);
            }
        }
        if (work.name().equals("keyed")) {
            found.sort(null);
        }
        World.same(found.stream().map(Object::toString).toList(), World.range(0, work.count()));
    }
}
