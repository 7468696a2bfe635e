// Transactions with Kafka's own producer, one after the other; prints what it measured as a line of JSON.

import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    /** Arguments: topic, partitions, transactions of the warm-up, those that are measured, a file of values, properties. */
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        int partitions = Integer.parseInt(arguments[1]);
        int warmUp = Integer.parseInt(arguments[2]);
        int measured = Integer.parseInt(arguments[3]);
        List<byte[]> values = Files.readAllLines(Path.of(arguments[4])).stream()
            .map(line -> line.getBytes(StandardCharsets.UTF_8)).collect(Collectors.toList());
        Properties properties = new Properties();
        for (String property : Arrays.asList(arguments).subList(5, arguments.length)) {
            String[] pair = property.split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            transact(producer, topic, partitions, values, warmUp);
            long cpu = cpu();
            long[] nanoseconds = transact(producer, topic, partitions, values, measured);
            cpu = cpu() - cpu;
            String all = Arrays.stream(nanoseconds).mapToObj(each -> String.format(Locale.ROOT, "%.9f", each / 1e9))
                .collect(Collectors.joining(", "));
            System.out.printf(Locale.ROOT, "{\"cpu\": %.9f, \"seconds\": [%s]}%n", cpu / 1e9, all);
        }
    }

    private static long[] transact(
        KafkaProducer<byte[], byte[]> producer, String topic, int partitions, List<byte[]> values, int count
    ) {
        long[] nanoseconds = new long[count];
        for (int number = 0; number < count; number++) {
            long began = System.nanoTime();
            producer.beginTransaction();
            for (int each = 0; each < values.size(); each++) {
                producer.send(new ProducerRecord<>(topic, each % partitions, null, values.get(each)));
            }
            producer.commitTransaction();
            nanoseconds[number] = System.nanoTime() - began;
        }
        return nanoseconds;
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
