package main

import (
	"fmt"
	"os/exec"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func idle([]string) {
	prepare(0)
	before := rss(pid())
	start := time.Now()
	all := make([]*conn, *conns)
	for i := range all {
		c, err := dial(*bootstrap)
		check(err)
		_, err = c.call(kmsg.NewPtrApiVersionsRequest())
		check(err)
		all[i] = c
	}
	opened := time.Since(start)
	result{"cmd": "idle-open", "conns": *conns, "open_ms": ms(opened)}.print() // whoever waits for them may begin
	time.Sleep(seconds2(*hold))
	after := rss(pid())
	result{"cmd": "idle", "conns": *conns, "open_ms": ms(opened), "rss_before_mb": before, "rss_after_mb": after,
		"kb_per_conn": round((after - before) * 1024 / float64(*conns))}.print()
	for _, c := range all {
		c.close()
	}
}

func fillGroup(g int) *member { return &member{group: fmt.Sprintf("fill-%d", g), gen: -1} }

func fillOffset(g, p, round int) int64 { return int64(round)*10_000_000 + int64(g)*1000 + int64(p) }

// fill commits --groups × --partitions distinct offsets, --rounds times.
func fill() {
	probe, err := dial(*bootstrap)
	check(err)
	fetchAll(probe, 1) // until no part of the offsets topic is still loading
	probe.close()
	start := time.Now()
	each(*conns, func(i int) {
		c, err := dial(*bootstrap)
		check(err)
		defer c.close()
		k := newChecker()
		var last kmsg.Request
		inFlight := 0
		drain := func(to int) {
			for ; inFlight > to; inFlight-- {
				body, err := c.read()
				check(err)
				k.check(last, body)
			}
		}
		for round := range *rounds {
			for g := i; g < *groups; g += *conns {
				for p := 0; p < *partitions; p += *perRequest {
					req := commitRequest(fillGroup(g), p, min(*perRequest, *partitions-p), 0)
					for j := range req.Topics[0].Partitions {
						req.Topics[0].Partitions[j].Offset = fillOffset(g, p+j, round)
					}
					last = req
					c.queue(req)
					if inFlight++; inFlight >= *depth {
						check(c.flush())
						drain(*depth / 2)
					}
				}
			}
		}
		check(c.flush())
		drain(0)
		if len(k.errors) > 0 {
			check(fmt.Errorf("fill: errors %v", k.errors))
		}
	})
	n := *groups * *partitions * *rounds
	result{"cmd": "fill", "groups": *groups, "partitions": *partitions, "rounds": *rounds, "per_request": *perRequest,
		"seconds": round(time.Since(start).Seconds()), "offsets_per_s": round(float64(n) / time.Since(start).Seconds())}.print()
}

func fillCommand([]string) {
	prepare(*partitions)
	u := usageNow()
	fill()
	r := result{"cmd": "fill-cost"}
	u.since(r)
	r.print()
}

func shell(command string) {
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		check(fmt.Errorf("%s: %w: %s", command, err, out))
	}
}

// restart stops and starts the server and times, from the start, the first
// answered ApiVersions, the first FindCoordinator, one OffsetFetch of every
// group without a loading error, and a check of every committed offset.
// With --started-unix-ns somebody else has just started it, and there is one repetition.
func restart([]string) {
	if *startedNs != 0 {
		*repeat, *noFill, *stopCmd, *startCmd = 1, true, "true", "true"
	}
	if !*noFill && *groups > 0 {
		prepare(*partitions)
		fill()
	}
	for range *repeat {
		start := time.Now()
		shell(*stopCmd)
		stopped := time.Since(start)
		u := usageNow() // the server is gone: its CPU counts from zero
		u.server = 0
		start = time.Now()
		if *startedNs != 0 {
			start = time.Unix(0, *startedNs)
		}
		shell(*startCmd)
		for negotiate(*bootstrap) != nil {
			time.Sleep(2 * time.Millisecond)
		}
		r := result{"cmd": "restart", "groups": *groups, "partitions": *partitions, "stop_ms": ms(stopped),
			"api_ms": ms(time.Since(start)), "rss_at_api_mb": rss(pid())}
		if *groups > 0 {
			c, err := dial(*bootstrap)
			check(err)
			for findCoordinator(c, "fill-0") != 0 {
				time.Sleep(2 * time.Millisecond)
			}
			r["find_ms"] = ms(time.Since(start))
			retries, _, _ := fetchAll(c, 1)
			r["all_groups_ms"], r["retries"], r["rss_loaded_mb"] = ms(time.Since(start)), retries, rss(pid())
			_, missing, stale := fetchAll(c, *partitions)
			r["verified_ms"], r["missing_offsets"], r["stale_offsets"] = ms(time.Since(start)), missing, stale
			if missing+stale > 0 { // does it last?
				_, missing, stale = fetchAll(c, *partitions)
				r["missing_again"], r["stale_again"] = missing, stale
			}
			c.close()
		}
		time.Sleep(time.Second)
		u.since(r)
		r.print()
	}
}

// fetchAll fetches n partitions of every group, 32 in flight, repeating those
// still loading; it counts the repeats and, of the offsets answered without error,
// those missing (-1) and those that are not the last committed.
func fetchAll(c *conn, n int) (retries, missing, stale int) {
	todo := make([]int, *groups)
	for g := range todo {
		todo[g] = g
	}
	for len(todo) > 0 {
		batch := todo[:min(32, len(todo))]
		todo = todo[len(batch):]
		for _, g := range batch {
			c.queue(fetchRequest(fillGroup(g).group, n))
		}
		check(c.flush())
		for _, g := range batch {
			req := fetchRequest("", n)
			body, err := c.read()
			check(err)
			resp, err := decode(req, body)
			check(err)
			switch code := errorOf(resp); code {
			case 0:
				m, s := wrongOffsets(resp.(*kmsg.OffsetFetchResponse), g)
				missing, stale = missing+m, stale+s
			case 14, 15, 16:
				retries++
				todo = append(todo, g)
			default:
				check(fmt.Errorf("OffsetFetch: error %d", code))
			}
		}
	}
	return retries, missing, stale
}

func wrongOffsets(r *kmsg.OffsetFetchResponse, g int) (missing, stale int) {
	note := func(p int32, offset int64) {
		if offset < 0 {
			missing++
		} else if offset != fillOffset(g, int(p), *rounds-1) {
			stale++
		}
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			note(p.Partition, p.Offset)
		}
	}
	for _, group := range r.Groups {
		for _, t := range group.Topics {
			for _, p := range t.Partitions {
				note(p.Partition, p.Offset)
			}
		}
	}
	return missing, stale
}
