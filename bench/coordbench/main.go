// coordbench measures a Kafka group coordinator over raw, pipelined requests.
// One JSON line per result; see README.md.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	flags      = flag.NewFlagSet("coordbench", flag.ExitOnError)
	bootstrap  = flags.String("bootstrap", "127.0.0.1:9092", "the coordinator, HOST:PORT")
	label      = flags.String("label", "", "copied into every result line")
	serverPid  = flags.Int("server-pid", 0, "process whose CPU and RSS are read from /proc")
	pidFile    = flags.String("server-pid-file", "", "file holding that process id; read anew for every use")
	conns      = flags.Int("conns", 1, "connections")
	depth      = flags.Int("depth", 1, "requests in flight per connection")
	partitions = flags.Int("partitions", 1, "partitions per commit or fetch")
	joined     = flags.Bool("joined", false, "commit, fetch: as a joined member, not as a simple consumer")
	seconds    = flags.Float64("seconds", 5, "measured time")
	warmup     = flags.Float64("warmup", 2, "unmeasured time before it")
	repeat     = flags.Int("repeat", 3, "repetitions, one line each")
	groups     = flags.Int("groups", 100, "groups")
	members    = flags.Int("members", 10, "members per group")
	rate       = flags.Float64("rate", 1000, "mixed: requests per second, open loop")
	search     = flags.Bool("search", false, "mixed: find the highest rate with p99 < --p99-ms, from --rate upwards")
	p99ms      = flags.Float64("p99-ms", 50, "mixed --search: the limit")
	hold       = flags.Float64("hold", 0, "idle: seconds to hold the connections before reading RSS")
	rounds     = flags.Int("rounds", 1, "fill: times every offset is committed")
	perRequest = flags.Int("per-request", 100, "fill: partitions per commit")
	noFill     = flags.Bool("no-fill", false, "restart: the offsets are there already")
	lives      = flags.Float64("lives", 1, "churn: short-lived groups a second")
	interval   = flags.Float64("interval", 10, "churn: seconds between two lines")
	stopCmd    = flags.String("stop-cmd", "", "restart: shell command that returns once the server is gone")
	startCmd   = flags.String("start-cmd", "", "restart: shell command that starts the server and returns")
	startedNs  = flags.Int64("started-unix-ns", 0, "restart: the server was started at this moment; no commands are run")
	config     = flags.String("config", "", "topic-config: NAME=VALUE, or NAME alone for its default")
	topic      = flags.String("topic", "bench", "topic committed to")
	create     = flags.Bool("create-topic", true, "create the topic if it is missing")
	dataDir    = flags.String("data-dir", "", "kfake: keep state here; limits: directory to measure")
	syncWrites = flags.Bool("sync", false, "kfake: fsync every write")
	listen     = flags.String("listen", "127.0.0.1:9092", "kfake, echo-server: address")
)

func main() {
	commands := map[string]func([]string){
		"commit": closedLoop, "fetch": closedLoop, "heartbeat": closedLoop, "mixed": mixed,
		"rebalance": rebalance, "storm": storm, "idle": idle, "fill": fillCommand, "restart": restart, "decode": decodeTopic,
		"churn": churn, "topic-config": topicConfig,
		"summary": summary, "kfake": kfakeServer, "echo-server": echoServer, "echo": echo, "limits": limits,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: coordbench commit|fetch|heartbeat|mixed|rebalance|storm|idle|fill|restart|churn|topic-config|decode|summary|kfake|echo-server|echo|limits [flags]")
		flags.PrintDefaults()
		os.Exit(2)
	}
	flags.Parse(os.Args[2:])
	commands[os.Args[1]](os.Args[1:])
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// prepare negotiates versions, creates the topic, and waits for the coordinator.
func prepare(partitions int) {
	check(negotiate(*bootstrap))
	c, err := dial(*bootstrap)
	check(err)
	defer c.close()
	if *create && partitions > 0 {
		req := ver(kmsg.NewPtrCreateTopicsRequest())
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = *topic, int32(partitions), 1
		req.Topics, req.TimeoutMillis = append(req.Topics, t), 30000
		resp, err := c.call(req)
		check(err)
		if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 && code != 36 {
			log.Fatalf("creating %s: error %d", *topic, code)
		}
		for !topicReady(c, partitions) {
			time.Sleep(50 * time.Millisecond)
		}
	}
	for findCoordinator(c, "g0") != 0 {
		time.Sleep(50 * time.Millisecond)
	}
}

func topicReady(c *conn, partitions int) bool {
	req := ver(kmsg.NewPtrMetadataRequest())
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = topic
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req)
	check(err)
	got := resp.(*kmsg.MetadataResponse).Topics[0]
	if got.ErrorCode == 0 && len(got.Partitions) < partitions {
		log.Fatalf("topic %s has %d partitions, %d needed: pass another --topic", *topic, len(got.Partitions), partitions)
	}
	return got.ErrorCode == 0
}

func findCoordinator(c *conn, group string) int16 {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(3)
	req.CoordinatorKey = group
	resp, err := c.call(req)
	if err != nil {
		return -1
	}
	return resp.(*kmsg.FindCoordinatorResponse).ErrorCode
}

func seconds2(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
