import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Collection;
import org.apache.kafka.common.TopicPartition;

/** What a program is asked to do, as bench/worker/asked.py writes it. */
record Asked(
        String bootstrap,
        String group,
        String source,
        String sink,
        String key,
        String guarantee,
        String compression,
        Path directory) {

    /** Read the file that is the first argument; state may be kept beside it. */
    static Asked read(String[] arguments) throws IOException {
        var file = new File(arguments[0]).getAbsoluteFile();
        var told = new ObjectMapper().readTree(file);
        return new Asked(
                told.required("bootstrap").asText(),
                told.required("group").asText(),
                told.required("source").asText(),
                told.required("sink").asText(),
                told.required("key").asText(),
                told.required("guarantee").asText(),
                told.required("compression").asText(),
                file.getParentFile().toPath());
    }

    /** The clock starts. */
    static void tellAssigned(Collection<TopicPartition> partitions) {
        var numbers = partitions.stream().map(TopicPartition::partition).sorted().toList();
        System.err.println("{\"event\": \"assigned\", \"partitions\": " + numbers + "}");
    }
}
