// franz-go obeys the orders of the client matrix: a line of JSON with an order comes in, one with the answer goes out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type order struct {
	Do, Topic, Group, Member, Codec, Metadata  string
	Values, Members                            []string
	Assignor, Instance                         *string
	Session_ms, Offset, Timeout_ms, Partitions int64
	Producer, Id, Output                       string
	Isolation                                  *string
}

type member struct {
	client   *kgo.Client
	lock     sync.Mutex // the client says from threads of its own what is assigned
	assigned map[int32]bool
	values   []string
}

var (
	servers   string
	admin     *kadm.Client
	producers = map[string]*kgo.Client{}
	members   = map[string]*member{}
	codecs    = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	assignors = map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
)

func main() {
	servers = os.Args[1]
	admin = kadm.NewClient(connect())
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var told order
		answer := map[string]any{}
		err := json.Unmarshal(lines.Bytes(), &told)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			answer["result"], err = obey(ctx, told)
			cancel()
		}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

func connect(given ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(given, kgo.SeedBrokers(servers))...)
	if err != nil {
		panic(err)
	}
	return client
}

func obey(ctx context.Context, told order) (any, error) {
	switch told.Do {
	case "produce":
		return nil, produce(ctx, told)
	case "join":
		return nil, join(told)
	case "poll":
		return poll(ctx, told.Members), nil
	case "commit":
		return nil, commit(ctx, told)
	case "seek":
		start := map[string]map[int32]kgo.EpochOffset{told.Topic: {0: {Epoch: -1, Offset: 0}}}
		members[told.Member].client.SetOffsets(start)
		return nil, nil
	case "leave":
		members[told.Member].client.Close()
		delete(members, told.Member)
		return nil, nil
	case "committed":
		return committed(ctx, told.Group)
	case "groups":
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	case "describe":
		return describe(ctx, told.Group)
	case "alter_offsets":
		wanted := kadm.Offsets{}
		wanted.AddOffset(told.Topic, 0, told.Offset, -1)
		done, err := admin.CommitOffsets(ctx, told.Group, wanted)
		if err == nil {
			err = done.Error()
		}
		return nil, err
	case "delete_offsets":
		done, err := admin.DeleteOffsets(ctx, told.Group, kadm.TopicsSet{told.Topic: {0: {}}})
		if err == nil {
			err = done.Error()
		}
		return nil, err
	case "delete_group":
		done, err := admin.DeleteGroup(ctx, told.Group)
		if err == nil {
			err = done.Err
		}
		return nil, err
	case "delete_topic":
		done, err := admin.DeleteTopic(ctx, told.Topic)
		if err == nil {
			err = done.Err
		}
		return nil, err
	}
	return obey_transactions(ctx, told)
}

func not_an_order(told order) (any, error) {
	return nil, fmt.Errorf("%q is not an order", told.Do)
}

func produce(ctx context.Context, told order) error {
	producer, is_there := producers[told.Codec]
	if !is_there { // idempotent unless told otherwise
		producer = connect(
			kgo.ProducerBatchCompression(codecs[told.Codec]),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(20*time.Millisecond),
		)
		producers[told.Codec] = producer
	}
	var records []*kgo.Record
	for _, value := range told.Values {
		records = append(records, &kgo.Record{Topic: told.Topic, Partition: 0, Value: []byte(value)})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func join(told order) error {
	one := &member{assigned: map[int32]bool{}, values: []string{}}
	are := func(assigned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			one.lock.Lock()
			defer one.lock.Unlock()
			for _, partition := range topics[told.Topic] {
				if assigned {
					one.assigned[partition] = true
				} else {
					delete(one.assigned, partition)
				}
			}
		}
	}
	given := []kgo.Opt{
		kgo.ClientID(told.Member),
		kgo.ConsumerGroup(told.Group),
		kgo.ConsumeTopics(told.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(time.Duration(told.Session_ms) * time.Millisecond),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(are(true)),
		kgo.OnPartitionsRevoked(are(false)),
		kgo.OnPartitionsLost(are(false)),
	}
	if told.Assignor != nil {
		given = append(given, kgo.Balancers(assignors[*told.Assignor]))
	}
	if told.Instance != nil {
		given = append(given, kgo.InstanceID(*told.Instance))
	}
	if told.Isolation != nil && *told.Isolation == "read_committed" {
		given = append(given, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	one.client = connect(given...)
	members[told.Member] = one
	return nil
}

func poll(ctx context.Context, names []string) any {
	state := map[string]any{}
	for _, name := range names {
		one := members[name]
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		one.client.PollFetches(soon).EachRecord(func(record *kgo.Record) {
			one.values = append(one.values, string(record.Value))
		})
		cancel()
	}
	for _, name := range names {
		one := members[name]
		one.lock.Lock()
		assigned := []int32{}
		for partition := range one.assigned {
			assigned = append(assigned, partition)
		}
		one.lock.Unlock()
		state[name] = map[string]any{"assigned": assigned, "values": one.values}
	}
	return state
}

func commit(ctx context.Context, told order) error {
	var refused error
	with_metadata := kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		request.Topics[0].Partitions[0].Metadata = &told.Metadata
		return nil
	})
	offsets := map[string]map[int32]kgo.EpochOffset{told.Topic: {0: {Epoch: -1, Offset: told.Offset}}}
	members[told.Member].client.CommitOffsetsSync(with_metadata, offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			refused = err
		})
	return refused
}

func committed(ctx context.Context, group string) (any, error) {
	found, err := admin.FetchOffsets(ctx, group)
	offsets := [][]any{}
	found.Each(func(each kadm.OffsetResponse) {
		offsets = append(offsets, []any{each.Partition, each.At, each.Metadata})
	})
	return offsets, err
}

func describe(ctx context.Context, group string) (any, error) {
	found, err := admin.DescribeGroups(ctx, group)
	clients := []string{}
	for _, one := range found[group].Members {
		clients = append(clients, one.ClientID)
	}
	sort.Strings(clients)
	return []any{found[group].State, clients}, err
}
