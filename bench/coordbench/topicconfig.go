package main

import (
	"log"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicConfig sets --config NAME=VALUE on --topic, or takes NAME back to its default when there is no value, and returns
// once the broker says that it goes by it.
func topicConfig([]string) {
	name, value, given := strings.Cut(*config, "=")
	prepare(0) // finding a coordinator makes the offsets topic
	c, err := dial(*bootstrap)
	check(err)
	defer c.close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, *topic
	entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	entry.Name, entry.Op = name, kmsg.IncrementalAlterConfigOpDelete
	if given {
		entry.Op, entry.Value = kmsg.IncrementalAlterConfigOpSet, &value
	}
	resource.Configs = append(resource.Configs, entry)
	req.Resources = append(req.Resources, resource)
	resp, err := c.call(req)
	check(err)
	if r := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; r.ErrorCode != 0 {
		log.Fatalf("setting %s on %s: error %d", *config, *topic, r.ErrorCode)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		now, isOwn := describeConfig(c, name)
		if isOwn == given && (!given || now == value) {
			result{"cmd": "topic-config", "topic": *topic, "name": name, "value": now}.print()
			return
		}
		if time.Now().After(deadline) {
			log.Fatalf("%s on %s is still %s", name, *topic, now)
		}
	}
}

// describeConfig is the value in force, and whether the topic has one of its own.
func describeConfig(c *conn, name string) (string, bool) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.SetVersion(4)
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, *topic
	resource.ConfigNames = []string{name}
	req.Resources = append(req.Resources, resource)
	resp, err := c.call(req)
	check(err)
	r := resp.(*kmsg.DescribeConfigsResponse).Resources[0]
	if r.ErrorCode != 0 || len(r.Configs) != 1 || r.Configs[0].Value == nil {
		log.Fatalf("asking %s of %s: error %d", name, *topic, r.ErrorCode)
	}
	return *r.Configs[0].Value, r.Configs[0].Source == kmsg.ConfigSourceDynamicTopicConfig
}
