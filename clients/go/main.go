// Send, receive and acknowledge one message; the broker's URL is the argument.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"eruca/clients/broker"
	_ "eruca/clients/controller"
	_ "eruca/clients/namesrv"
	_ "eruca/clients/query"
	_ "eruca/clients/txnchecker"
)

const name = "clients-go" // of the topic and of the group

func main() {
	if err := roundTrip(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func roundTrip(ctx context.Context, url string) error {
	client, err := broker.NewClientWithResponses(url)
	if err != nil {
		return err
	}
	queues := 1
	topic, err := client.PutTopicWithResponse(ctx, name, nil, broker.TopicSettings{WriteQueueCount: &queues, ReadQueueCount: &queues})
	if err != nil || topic.JSON200 == nil && topic.JSON201 == nil {
		return fmt.Errorf("topic: %v %s", err, topic.Body)
	}
	text := "sent from Go"
	var body broker.SendMessagesJSONRequestBody
	if err := body.FromNewMessage(broker.NewMessage{Body: broker.Body{Text: &text}}); err != nil {
		return err
	}
	sent, err := client.SendMessagesWithResponse(ctx, name, nil, body)
	if err != nil || sent.JSON201 == nil {
		return fmt.Errorf("send: %v %s", err, sent.Body)
	}
	start, wait := "earliest", 20.0
	received, err := client.ReceiveDeliveriesWithResponse(ctx, name, broker.DeliveryRequest{Topic: name, Start: &start, WaitSeconds: &wait})
	if err != nil || received.JSON200 == nil || len(received.JSON200.Deliveries) != 1 {
		return fmt.Errorf("receive: %v %s", err, received.Body)
	}
	delivery := received.JSON200.Deliveries[0]
	if got := delivery.Message.Body.Text; got == nil || *got != text {
		return fmt.Errorf("received %s", received.Body)
	}
	done, err := client.AckDeliveriesWithResponse(ctx, name, broker.DeliveryAcks{Handles: []string{delivery.Handle}})
	if err != nil || done.StatusCode() != 204 {
		return fmt.Errorf("acknowledge: %v %s", err, done.Body)
	}
	fmt.Println(*delivery.Message.MessageId)
	return nil
}
