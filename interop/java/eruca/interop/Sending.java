package eruca.interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends the messages of a request and answers with their receipts. */
final class Sending {
    private final DefaultMQProducer producer;

    Sending(DefaultMQProducer producer) {
        this.producer = producer;
    }

    /** Sends one message after another; a sharding key selects the queue by its hash. */
    List<JSONObject> send(JSONObject request) throws Exception {
        List<JSONObject> receipts = new ArrayList<>();
        for (Object item : request.getJSONArray("messages")) {
            Message message = message((JSONObject) item);
            String shardingKey = message.getProperty(MessageConst.PROPERTY_SHARDING_KEY);
            SendResult result = shardingKey == null
                ? producer.send(message)
                : producer.send(message, new SelectMessageQueueByHash(), shardingKey);
            receipts.add(receipt(result));
        }
        return receipts;
    }

    /** Sends a message with a delay level or a delay; answers with its recall handle. */
    List<JSONObject> sendLater(JSONObject request) throws Exception {
        Message message = message(request.getJSONObject("message"));
        if (request.getLongValue("delay_ms") > 0) {
            message.setDelayTimeMs(request.getLongValue("delay_ms"));
        }
        return List.of(JSONObject.of("recall_handle", producer.send(message).getRecallHandle()));
    }

    /** Sends all messages at once, into one queue of the client's choice. */
    List<JSONObject> sendBatch(JSONObject request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object item : request.getJSONArray("messages")) {
            messages.add(message((JSONObject) item));
        }
        return List.of(receipt(producer.send(messages)));
    }

    /** Sends one message in a transaction that is decided at once, or never: UNKNOW. */
    static List<JSONObject> transaction(String nameServer, JSONObject request) throws Exception {
        LocalTransactionState decision =
            LocalTransactionState.valueOf(request.getString("decision"));
        TransactionMQProducer producer = new TransactionMQProducer(request.getString("group"));
        producer.setNamesrvAddr(nameServer);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return decision;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return decision;
            }
        });
        producer.start();
        try {
            Message message = message(request.getJSONObject("message"));
            return List.of(receipt(producer.sendMessageInTransaction(message, null)));
        } finally {
            producer.shutdown();
        }
    }

    private static JSONObject receipt(SendResult result) {
        return JSONObject.of(
            "status", result.getSendStatus().name(),
            "queue_id", result.getMessageQueue().getQueueId(),
            "queue_offset", result.getQueueOffset(),
            "message_id", result.getMsgId(),
            "offset_message_id", result.getOffsetMsgId());
    }

    private static Message message(JSONObject item) {
        Message message =
            new Message(item.getString("topic"), Base64.getDecoder().decode(item.getString("body")));
        if (item.getString("tag") != null) {
            message.setTags(item.getString("tag"));
        }
        if (!item.getJSONArray("keys").isEmpty()) {
            message.setKeys(item.getJSONArray("keys").toList(String.class));
        }
        if (item.getString("sharding_key") != null) {
            message.putUserProperty(
                MessageConst.PROPERTY_SHARDING_KEY, item.getString("sharding_key"));
        }
        item.getJSONObject("properties").forEach(
            (name, value) -> message.putUserProperty(name, (String) value));
        message.setFlag(item.getIntValue("flag"));
        if (item.getIntValue("delay_level") > 0) {
            message.setDelayTimeLevel(item.getIntValue("delay_level"));
        }
        return message;
    }
}
