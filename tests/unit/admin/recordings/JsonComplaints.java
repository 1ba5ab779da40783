// What Kafka's parser says of texts: a JSON string a line in, a JSON string (or null, for JSON) a line out.
// With the class path of a real Kafka's jars; `json_complaints.jsonl` is what 3.9.1 and 4.1.0 said.

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

public class JsonComplaints {
    public static void main(String[] ignored) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader texts = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream complaints = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = texts.readLine(); line != null; line = texts.readLine()) {
            String complaint = null;
            try {
                json.readTree(json.readValue(line, String.class));
            } catch (JsonProcessingException e) {
                complaint = e.getMessage();
            }
            complaints.println(json.writeValueAsString(complaint));
        }
    }
}
