// Send, receive and acknowledge one message; the broker's URL is the argument. The client is
// hey-api's, whose functions are named after the operations.
import { ackDeliveries, putTopic, receiveDeliveries, sendMessages } from "./broker";
import { client } from "./broker/client.gen";

const name = "clients-hey-api"; // of the topic and of the group
client.setConfig({ baseUrl: process.argv[2] });

async function roundTrip(): Promise<string | null> {
  const topic = { path: { topic: name }, throwOnError: true } as const;
  const group = { path: { group: name }, throwOnError: true } as const;
  await putTopic({ ...topic, body: { write_queue_count: 1, read_queue_count: 1 } });
  await sendMessages({ ...topic, body: { body: { text: "sent from TypeScript" } } });
  const { data } = await receiveDeliveries({
    ...group, body: { topic: name, start: "earliest", wait_seconds: 20 },
  });
  const [delivery] = data.deliveries;
  if (delivery?.message.body?.text !== "sent from TypeScript") {
    throw new Error(`received ${JSON.stringify(delivery)}`);
  }
  await ackDeliveries({ ...group, body: { handles: [delivery.handle] } });
  return delivery.message.message_id;
}

roundTrip().then(console.log);
