package eruca.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Finds single messages by key, by unique id and by offset id. */
final class Finding {
    private static final int COUNT_MAX = 64;
    private static final int NO_MESSAGE = 208; // the client's code if a key is not found
    private static final int QUERY_NOT_FOUND = 22;

    private final DefaultMQAdminExt admin;

    Finding(DefaultMQAdminExt admin) {
        this.admin = admin;
    }

    List<JSONObject> find(JSONObject request) throws Exception {
        List<JSONObject> rows = new ArrayList<>();
        for (Object item : request.getJSONArray("values")) {
            List<JSONObject> found = new ArrayList<>();
            for (MessageExt message : one(
                request.getString("by"), request.getString("topic"), (String) item)) {
                found.add(Reading.describe(message));
            }
            rows.add(JSONObject.of("value", item, "found", found));
        }
        return rows;
    }

    private List<MessageExt> one(String by, String topic, String value) throws Exception {
        try {
            switch (by) {
                case "key":
                    return admin.queryMessage(topic, value, COUNT_MAX, 0, Long.MAX_VALUE)
                        .getMessageList();
                case "unique_id":
                    return admin.queryMessageByUniqKey(
                        null, topic, value, COUNT_MAX, 0, Long.MAX_VALUE).getMessageList();
                case "offset_id":
                    return List.of(admin.viewMessage(topic, value));
                default:
                    throw new IllegalArgumentException("cannot find by " + by);
            }
        } catch (MQClientException failure) {
            int code = failure.getResponseCode();
            if (code == NO_MESSAGE || code == QUERY_NOT_FOUND) {
                return List.of();
            }
            throw failure;
        }
    }
}
