package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	transactional = map[string]*kgo.Client{}
	sessions      = map[string]*kgo.GroupTransactSession{}
)

func obey_transactions(ctx context.Context, told order) (any, error) {
	switch told.Do {
	case "transactional":
		producer := connect(
			kgo.TransactionalID(told.Id),
			kgo.TransactionTimeout(time.Duration(told.Timeout_ms)*time.Millisecond),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		transactional[told.Producer] = producer
		_, _, err := producer.ProducerID(ctx)
		return nil, err
	case "begin":
		return nil, transactional[told.Producer].BeginTransaction()
	case "send":
		var records []*kgo.Record
		for number, value := range told.Values {
			partition := int32(number % int(told.Partitions))
			records = append(records, &kgo.Record{Topic: told.Topic, Partition: partition, Value: []byte(value)})
		}
		return nil, transactional[told.Producer].ProduceSync(ctx, records...).FirstErr()
	case "commit_transaction":
		return nil, end(ctx, told.Producer, kgo.TryCommit)
	case "abort_transaction":
		return nil, end(ctx, told.Producer, kgo.TryAbort)
	case "worker":
		return nil, worker(ctx, told)
	case "process":
		return process(ctx, told)
	}
	return not_an_order(told)
}

func end(ctx context.Context, name string, how kgo.TransactionEndTry) error {
	session, is_worker := sessions[name]
	if !is_worker {
		return transactional[name].EndTransaction(ctx, how)
	}
	_, err := session.End(ctx, how) // aborted after a rebalance, and what was polled comes again
	return err
}

// worker reads and writes with one client: offsets go with the end of a transaction.
func worker(ctx context.Context, told order) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(servers),
		kgo.TransactionalID(told.Id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(told.Group),
		kgo.ConsumeTopics(told.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(time.Duration(told.Session_ms)*time.Millisecond),
		kgo.HeartbeatInterval(200*time.Millisecond),
	)
	if err != nil {
		return err
	}
	sessions[told.Member] = session
	_, _, err = session.Client().ProducerID(ctx)
	return err
}

func process(ctx context.Context, told order) (any, error) {
	session := sessions[told.Member]
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	var records []*kgo.Record
	session.PollRecords(soon, 10).EachRecord(func(each *kgo.Record) {
		value := []byte("done " + string(each.Value))
		records = append(records, &kgo.Record{Topic: told.Output, Partition: each.Partition, Value: value})
	})
	if len(records) == 0 {
		return 0, nil
	}
	if err := session.Begin(); err != nil {
		return 0, err
	}
	return len(records), session.ProduceSync(ctx, records...).FirstErr()
}
