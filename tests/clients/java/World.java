import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** What one scenario works with, and what it says it wants. */
final class World implements AutoCloseable {
    static final int RECEIVE_SECONDS = 20;

    final String name;
    final String topic;
    final String serviceUrl;
    final String adminUrl;
    final PulsarClient client;
    private PulsarAdmin admin;

    World(String serviceUrl, String adminUrl, String name) throws Exception {
        this.name = name;
        this.topic = "persistent://public/default/" + name;
        this.serviceUrl = serviceUrl;
        this.adminUrl = adminUrl;
        this.client = PulsarClient.builder().serviceUrl(serviceUrl).operationTimeout(60, TimeUnit.SECONDS).build();
    }

    synchronized PulsarAdmin admin() throws Exception {
        if (admin == null) {
            admin = PulsarAdmin.builder().serviceHttpUrl(adminUrl).build();
        }
        return admin;
    }

    ProducerBuilder<String> producer() {
        return producer(topic);
    }

    ProducerBuilder<String> producer(String topic) {
        return client.newProducer(Schema.STRING).topic(topic).enableBatching(false);
    }

    ConsumerBuilder<String> consumer() {
        return consumer(topic);
    }

    ConsumerBuilder<String> consumer(String topic) {
        return anyTopic().topic(topic);
    }

    ConsumerBuilder<String> anyTopic() {
        return client.newConsumer(Schema.STRING)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static void send(Producer<String> producer, int first, int end) throws Exception {
        for (int number = first; number < end; number++) {
            producer.send(Integer.toString(number));
        }
    }

    static <T> List<Message<T>> take(Consumer<T> consumer, int count) throws Exception {
        List<Message<T>> messages = takeUnacknowledged(consumer, count);
        for (Message<T> message : messages) {
            consumer.acknowledge(message);
        }
        return messages;
    }

    static <T> List<Message<T>> takeUnacknowledged(Consumer<T> consumer, int count) throws Exception {
        List<Message<T>> messages = new ArrayList<>();
        while (messages.size() < count) {
            Message<T> message = consumer.receive(RECEIVE_SECONDS, TimeUnit.SECONDS);
            if (message == null) {
                throw new AssertionError("only " + messages.size() + " messages of " + count);
            }
            messages.add(message);
        }
        return messages;
    }

    static <T> List<T> values(List<Message<T>> messages) {
        return messages.stream().map(Message::getValue).toList();
    }

    static List<String> range(int first, int end) {
        List<String> numbers = new ArrayList<>();
        for (int number = first; number < end; number++) {
            numbers.add(Integer.toString(number));
        }
        return numbers;
    }

    static void nothingMore(Consumer<?> consumer) throws Exception {
        nothingMore(consumer, 300);
    }

    static void nothingMore(Consumer<?> consumer, int waitMs) throws Exception {
        Message<?> message = consumer.receive(waitMs, TimeUnit.MILLISECONDS);
        if (message != null) {
            throw new AssertionError("one more message: " + message.getValue() + " at " + message.getMessageId());
        }
    }

    static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("found " + found + ", wanted " + wanted);
        }
    }

    static void isTrue(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("it does not hold: " + what);
        }
    }

    /** Wait for a state; it fails only when the state never comes. */
    static void until(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(RECEIVE_SECONDS);
        while (!holds.call()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("it never came: " + what);
            }
            Thread.sleep(50);
        }
    }

    interface Work {
        void run() throws Exception;
    }

    /** The work must fail in this very way. */
    static <E extends Throwable> E refused(Class<E> kind, Work work) throws Exception {
        try {
            work.run();
        } catch (Exception error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            String status = error instanceof PulsarAdminException refused ? " with status " + refused.getStatusCode() : "";
            throw new AssertionError("not " + kind.getSimpleName() + " but " + error + status, error);
        }
        throw new AssertionError("not " + kind.getSimpleName() + ": nothing was refused");
    }

    @Override
    public void close() throws Exception {
        if (admin != null) {
            admin.close();
        }
        // Its connections are closed at once; its threads end two seconds later, which nobody has to wait for.
        client.closeAsync();
    }
}
