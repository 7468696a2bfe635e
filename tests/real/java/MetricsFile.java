import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker's reporter that writes each push of a client's metrics to a file. */
public class MetricsFile implements MetricsReporter, ClientTelemetry {
    private static final AtomicInteger COUNT = new AtomicInteger();
    private Path directory;

    @Override
    public void configure(Map<String, ?> configs) {
        directory = Path.of(String.valueOf(configs.get("metrics.file.directory")));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            ByteBuffer data = payload.data().duplicate();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            String name = String.format(
                "%06d %s %s", COUNT.incrementAndGet(), payload.clientInstanceId(), payload.isTerminating());
            try {
                Path part = Files.write(directory.resolve("part-" + name), bytes);
                Files.move(part, directory.resolve(name), StandardCopyOption.ATOMIC_MOVE);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
