package eruca.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * RocketMQ's own client, driven by lines of JSON: one request a line on standard input, one answer
 * a line on standard output, either {"rows": [...]} or {"error": "..."}.
 *
 * <p>Usage: java eruca.interop.Driver HOST:PORT (of a name server). It ends with its input.
 */
public final class Driver {
    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // keeps the client's logging out of the answers
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Session session = new Session(arguments[0])) {
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(answer(session, JSON.parseObject(line)));
            }
        }
        System.exit(0); // the client leaves non-daemon threads behind
    }

    private static String answer(Session session, JSONObject request) {
        JSONObject line = new JSONObject();
        try {
            line.put("rows", session.handle(request));
        } catch (Exception failure) {
            line.put("error", failure.toString());
        }
        return line.toString(JSONWriter.Feature.WriteMapNullValue);
    }
}
