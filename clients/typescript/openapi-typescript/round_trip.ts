// Send, receive and acknowledge one message; the broker's URL is the argument. The types are
// openapi-typescript's, the requests openapi-fetch's.
import createClient from "openapi-fetch";
import type { paths } from "./broker";

const name = "clients-openapi-typescript"; // of the topic and of the group
const client = createClient<paths>({ baseUrl: process.argv[2] });

function told<T>(what: string, answer: { data?: T; error?: unknown; response: Response }): T {
  if (!answer.response.ok) throw new Error(`${what}: ${JSON.stringify(answer.error)}`);
  return answer.data as T;
}

async function roundTrip(): Promise<string | null> {
  const topic = { params: { path: { topic: name } } };
  const group = { params: { path: { group: name } } };
  told("topic", await client.PUT("/v1/topics/{topic}", {
    ...topic, body: { write_queue_count: 1, read_queue_count: 1 },
  }));
  told("send", await client.POST("/v1/topics/{topic}/messages", {
    ...topic, body: { body: { text: "sent from TypeScript" } },
  }));
  const { deliveries } = told("receive", await client.POST("/v1/groups/{group}/deliveries", {
    ...group, body: { topic: name, start: "earliest", wait_seconds: 20 },
  }));
  const [delivery] = deliveries;
  if (delivery?.message.body?.text !== "sent from TypeScript") {
    throw new Error(`received ${JSON.stringify(delivery)}`);
  }
  told("acknowledge", await client.POST("/v1/groups/{group}/deliveries:ack", {
    ...group, body: { handles: [delivery.handle] },
  }));
  return delivery.message.message_id;
}

roundTrip().then(console.log);
