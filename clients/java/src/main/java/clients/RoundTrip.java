package clients;

import eruca.broker.ApiClient;
import eruca.broker.api.DeliveriesApi;
import eruca.broker.api.MessagesApi;
import eruca.broker.api.TopicsApi;
import eruca.broker.model.Body;
import eruca.broker.model.Delivery;
import eruca.broker.model.DeliveryAcks;
import eruca.broker.model.DeliveryAnswer;
import eruca.broker.model.DeliveryRequest;
import eruca.broker.model.NewMessage;
import eruca.broker.model.SendMessagesRequest;
import eruca.broker.model.TopicSettings;
import java.util.List;

/** Send, receive and acknowledge one message; the broker's URL is the argument. */
public final class RoundTrip {
    private RoundTrip() {}

    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient().setBasePath(arguments[0]);
        String topic = "clients-java";
        String group = "clients-java";
        TopicSettings settings = new TopicSettings().writeQueueCount(1).readQueueCount(1);
        new TopicsApi(client).putTopic(topic, settings, null);
        NewMessage message = new NewMessage().body(new Body().text("sent from Java")).tag("java");
        new MessagesApi(client)
                .sendMessages(
                        topic, new SendMessagesRequest(message),
                        null, null, null, null, null, null, null, null, null, null, null);
        DeliveriesApi deliveries = new DeliveriesApi(client);
        DeliveryRequest request =
                new DeliveryRequest().topic(topic).start("earliest").waitSeconds(20d);
        DeliveryAnswer answer = deliveries.receiveDeliveries(group, request);
        Delivery delivery = answer.getDeliveries().get(0);
        String text = delivery.getMessage().getBody().getText();
        if (!"sent from Java".equals(text)) {
            throw new IllegalStateException("received " + text);
        }
        deliveries.ackDeliveries(group, new DeliveryAcks().handles(List.of(delivery.getHandle())));
        System.out.println(delivery.getMessage().getMessageId());
    }
}
