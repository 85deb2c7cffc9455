'use strict';
// Where pages come from in a file: from blocks that are packed into it, unpacked when they are looked at.

(() => {
  const first = JSON.parse(document.getElementById('content').textContent);
  const { moments_ms: moments, groups } = first.report;
  const texts = [...document.querySelectorAll('script.block')].map((element) => element.textContent);
  const unpacked = new Map();

  // 0 is everything else, then a block for each moment, then one for each group.
  function block(number) {
    if (!unpacked.has(number)) unpacked.set(number, unpack(texts[number]));
    return unpacked.get(number);
  }
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
  }
  const summed = (steps) => { let value = 0; return steps.map((step) => (value += step)); };

  // The moment of the file that is the last before, or at, the one asked for.
  function placeOf(at) {
    if (!at) return moments.length - 1;
    const later = moments.findIndex((ms) => ms > Number(at));
    return later === -1 ? moments.length - 1 : Math.max(later - 1, 0);
  }

  const PAGES = {
    overview: async (params, place, moment) => ({ groups: moment.groups }),
    findings: async (params, place, moment, isNow) => ({ findings: begun((await block(0)).findings, moments[place], isNow) }),
    topic: async ({ name }, place, moment, isNow) => {
      const rest = await block(0), readers = moment.readers.rows.filter((row) => row[0] === name).map((row) => row.slice(1));
      const logs = Object.hasOwn(rest.topics, name) ? rest.topics[name] : [];
      if (!readers.length && !logs.length) return null;
      return { topic: name, readers: { columns: moment.readers.columns.slice(1), rows: readers }, partitions: { columns: rest.topic_columns, rows: isNow ? logs : [] },
        findings: begun({ columns: rest.findings.columns, rows: rest.findings.rows.filter((row) => row[rest.findings.columns.indexOf('topic')] === name) }, moments[place], isNow) };
    },
    group: async ({ id }, place, moment, isNow) => {
      const number = groups.indexOf(id);
      if (number === -1) return null;
      const group = await block(1 + moments.length + number);
      return { ...group, range: 'all', ...(isNow ? {} : asOf(group, id, place, moment)) };
    },
  };

  function begun(findings, at, isNow) {
    const since = findings.columns.indexOf('since_ms');
    return isNow ? findings : { columns: findings.columns, rows: findings.rows.filter((row) => row[since] !== null && row[since] <= at) };
  }

  // A group as it was at a moment of the file: nothing later is in it.
  function asOf(group, id, place, moment) {
    const at = moments[place], line = muster.rows(moment.groups).find((each) => each.group_id === id);
    const kept = group.series ? Math.max(Math.floor((at - group.series.start_ms) / group.series.slot_ms), 1) : 0;
    const cut = (values) => values.slice(0, kept);
    const members = group.timeline.members.map((member) => ({ ...member, bars: member.bars.filter((bar) => bar.from_ms <= at).map((bar) => (bar.to_ms !== null && bar.to_ms > at ? { ...bar, to_ms: null } : bar)) })).filter((member) => member.bars.length);
    const when = group.timeline.rebalances.columns.indexOf('at_ms');
    const series = group.series && { ...group.series, lag: cut(group.series.lag), lag_ms: cut(group.series.lag_ms), commits: cut(group.series.commits), consumed: cut(group.series.consumed) };
    const unknown = { overall: null, verdict: null, since_ms: null, lag: null, lag_ms: null };
    const { overall, verdict, since_ms, lag, lag_ms } = line || unknown;
    const there = members.filter((member) => member.bars[member.bars.length - 1].to_ms === null).length;
    return {
      group: { ...group.group, overall, verdict, since_ms, lag, lag_ms, members: there, state: null, type: null, generation: null, protocol: null, last_commit_ms: null, expires_ms: null },
      series, timeline: { ...group.timeline, members, rebalances: { columns: group.timeline.rebalances.columns, rows: group.timeline.rebalances.rows.filter((row) => row[when] <= at) } },
      partitions: { columns: group.partitions.columns, rows: partitionsAt(group, place, at) }, findings: begun(group.findings, at, false),
    };
  }

  function partitionsAt(group, place, at) {
    if (!group.past) return [];
    const said = new Map();
    for (const [topic, partition, since, word] of group.said) if (since <= at) said.set(`${partition} ${topic}`, [word, since]);
    const values = (name) => group.past[name].map((steps) => summed(steps)[place]).map((value) => (value === -1 ? null : value));
    const columns = Object.fromEntries(['committed_offset', 'log_end_offset', 'lag', 'lag_ms'].map((name) => [name, values(name)]));
    return group.past.keys.map(([topic, partition], number) => {
      const [verdict, since_ms] = said.get(`${partition} ${topic}`) || [null, null];
      const row = { topic, partition, verdict, since_ms, committed_offset: columns.committed_offset[number], log_end_offset: columns.log_end_offset[number], lag: columns.lag[number], lag_ms: columns.lag_ms[number] };
      return group.partitions.columns.map((name) => row[name] ?? null);
    }).filter((row) => row[group.partitions.columns.indexOf('committed_offset')] !== null);
  }

  const query = (params) => new URLSearchParams(Object.entries(params).filter(([, value]) => value !== '' && value !== undefined && value !== null)).toString();

  muster.source = {
    hasRanges: false,
    moments,
    href: (route) => `#${route.page}?${query({ ...route.params, at: route.params.at ?? muster.at() })}`,
    route: () => {
      const [page, text] = location.hash.slice(1).split(/\?(.*)/s);
      return { page: Object.hasOwn(PAGES, page) ? page : 'overview', params: Object.fromEntries(new URLSearchParams(text || '')) };
    },
    load: async (route) => {
      const place = placeOf(route.params.at), isNow = place === moments.length - 1;
      const found = await PAGES[route.page](route.params, place, await block(1 + place), isNow);
      if (!found) return { page: 'error', sentence: 'This is not in the file: there is no such group or topic.' };
      const { report, groups: unused, ...head } = first;
      const then = isNow ? {} : { findings_by_severity: null, findings_note: 'Of what was found at the last look, what had begun by then.' };
      return { ...head, ...then, ...found, page: route.page, at_ms: moments[place], is_now: isNow };
    },
    note: () => muster.h('span', { class: 'faint' }, moments.length > 1 ? `${moments.length} moments are in this file, ${muster.duration(moments[1] - moments[0])} apart.` : 'One moment is in this file: the last look.'),
    begin: async () => {},
  };
})();
