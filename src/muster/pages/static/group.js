'use strict';
// One group: how it does, plots, rebalances, partitions, members.

const RANGES = ['1h', '6h', '24h', '7d', 'all'];

muster.views.group = (content, route) => {
  const group = content.group, at = content.at_ms, partitions = muster.rows(content.partitions);
  return [
    muster.h('h1', {}, group.group_id || '(no name)'),
    muster.h('div', { class: 'verdict' }, muster.pill(group.verdict), ' ', sentenceOf(group, partitions, at)),
    facts(group, content), muster.factsNow(group.group_id),
    muster.findingsOf(content, { id: group.group_id }, () => true, false),
    plots(content, route),
    muster.timeline(content),
    muster.h('section', {}, muster.h('h2', {}, `Partitions (${muster.number(partitions.length)})`), partitionTable(partitions, content)),
    members(content),
  ];
};

function sentenceOf(group, partitions, at) {
  if (!group.verdict) return 'Nobody can say how it does: no end of its logs was observed, or no run has judged it.';
  const some = partitions.filter((each) => each.verdict === group.verdict);
  if (group.verdict === 'OK') return `All ${partitions.length} partitions are well.`;
  const meaning = { WARN: 'the lag only grows', STALLED: 'commits go on with the same offset', STOPPED: 'nothing is committed any more', REWIND: 'an offset went back', LOSING: 'records were deleted unread', EXPIRING: 'the offset will be deleted soon' }[group.verdict] || '';
  const since = group.since_ms === null ? '' : ` for ${muster.duration(at - group.since_ms)}, since ${muster.fullTime(group.since_ms)}`;
  return `${some.length} of ${partitions.length} partitions: ${meaning}${since}.`;
}

// When something of the group will be deleted first; of a past moment that comes later, with the findings.
function firstExpiry(content) {
  if (content.is_now) return content.group.expires_ms;
  const times = muster.rows(content.expiry).map((each) => each.expires_at_ms);
  return times.length ? Math.min(...times) : null;
}

function facts(group, content) {
  const at = content.at_ms;
  const told = [
    ['Behind', muster.duration(group.lag_ms)], ['Lag, records', muster.number(group.lag)], ['Members', muster.number(group.members)],
    group.state && ['State', `${group.state}, ${group.type}`], group.generation !== null && ['Generation', group.generation],
    group.protocol && ['Assignor', group.protocol], ['Last commit', muster.ago(group.last_commit_ms, at)],
    (content.is_now || content.expiry) && ['Expires', firstExpiry(content) === null ? 'not foreseen' : muster.ago(firstExpiry(content), at)],
  ].filter(Boolean);
  return muster.h('dl', { class: 'facts' }, told.map(([name, value]) => muster.h('div', {}, muster.h('dt', {}, name), muster.h('dd', {}, value))));
}

muster.factsNow = (id) => {
  if (!muster.live.isThere()) return null;
  const told = [['Lag now', (now) => muster.number(now.lag)], ['Behind now', (now) => muster.duration(now.lag_ms)], ['Members now', (now) => muster.number(now.members)], ['State now', (now) => `${now.state || 'unknown'}, ${now.type || 'unknown'}`], ['Last commit now', (now) => (now.last_commit_ms === null ? muster.NONE : muster.time(now.last_commit_ms))]];
  return muster.h('dl', { class: 'facts now' }, told.map(([name, text]) => muster.h('div', {}, muster.h('dt', {}, name), muster.h('dd', {}, muster.live.cell(() => muster.live.group(id), text)))));
};

// A group that the tables do not have, but the cluster has.
muster.liveOnly = (content) => {
  const group = content.live && content.live.group;
  if (!group) return null;
  const columns = [{ title: 'Topic', cell: (each) => `${each.topic}-${each.partition}` }, ...partitionsNow()];
  return muster.h('section', {}, muster.h('h2', {}, `The cluster has it now: ${group.group_id}`), muster.factsNow(group.group_id), muster.table(columns, muster.rows(content.live.partitions)));
};

function partitionsNow() {
  const number = (name) => (each) => muster.live.cell(() => muster.live.partition(each.partition, each.topic), (now) => muster.number(now[name]));
  return [
    { title: 'Lag now', number: true, wide: true, cell: number('lag') },
    { title: 'Committed now', number: true, wide: true, cell: number('committed_offset') },
    { title: 'End now', number: true, wide: true, cell: number('log_end_offset') },
  ];
}

function plots(content, route) {
  const series = content.series, at = { start: series.start_ms, slot: series.slot_ms };
  const perMinute = (values) => values.map((value) => (value === null ? null : value * 60e3 / series.slot_ms));
  const perSecond = (values) => values.map((value) => (value === null ? null : value * 1e3 / series.slot_ms));
  const commits = perMinute(series.commits), consumed = perSecond(series.consumed);
  const ranges = muster.source.hasRanges ? muster.h('div', { class: 'ranges', role: 'group', 'aria-label': 'How far back' }, RANGES.map((range) => muster.h('button', {
    type: 'button', 'aria-pressed': String(content.range === range), onclick: () => muster.replace({ range }),
  }, range))) : null;
  return muster.h('section', {}, muster.h('div', { class: 'bar-top' }, muster.h('h2', {}, 'Over time'), ranges),
    muster.h('div', { class: 'plots' },
      muster.plot({ ...at, title: 'Lag, records', values: series.lag, told: (place) => muster.number(series.lag[place]) }),
      muster.plot({ ...at, title: 'Behind', values: series.lag_ms, isTime: true, told: (place) => muster.duration(series.lag_ms[place]) }),
      muster.plot({ ...at, title: 'Commits a minute', isRate: true, values: commits, told: (place) => (commits[place] === null ? 'not known' : muster.shortNumber(commits[place])) }),
      muster.plot({ ...at, title: 'Consumed records a second', isRate: true, values: consumed, told: (place) => (consumed[place] === null ? 'not known' : muster.shortNumber(consumed[place])) })));
}

function partitionTable(partitions, content) {
  const at = content.at_ms, expiry = new Map((content.expiry ? muster.rows(content.expiry) : []).map((each) => [`${each.partition} ${each.topic}`, each]));
  const then = (each) => expiry.get(`${each.partition} ${each.topic}`) || {};
  const columns = [
    { name: 'verdict', title: 'Verdict', cell: (each) => muster.summaryOf({ verdict: each.verdict, since_ms: each.since_ms }, at) },
    { title: 'Topic', cell: (each) => muster.link({ page: 'topic', params: { name: each.topic } }, { class: 'row-link' }, `${each.topic}-${each.partition}`) },
    { title: 'Behind', number: true, cell: (each) => muster.duration(each.lag_ms) },
    { title: 'Lag', number: true, cell: (each) => (each.lag === null && each.lag_unknown ? muster.h('span', { class: 'faint' }, each.lag_unknown) : muster.number(each.lag)) },
    { title: 'Committed', number: true, wide: true, cell: (each) => muster.number(each.committed_offset) },
    { title: 'End', number: true, wide: true, cell: (each) => muster.number(each.log_end_offset) },
    ...(muster.live.isThere() ? partitionsNow() : []),
    { title: 'Last commit', wide: true, cell: (each) => muster.ago(each.last_commit_ms, at) },
    ...(content.is_now ? [
      { title: 'Lost', number: true, wide: true, cell: (each) => (each.lost_records ? muster.number(each.lost_records) : muster.NONE) },
      expires((each) => each.expires_ms, (each) => each.rule, at),
      { title: 'Who has it', wide: true, cell: (each) => (each.member_id === null ? muster.NONE : muster.h('span', { title: each.member_id }, `${each.client_id || each.member_id} ${each.client_host || ''}`)) },
      { title: 'Metadata', wide: true, cell: (each) => each.metadata || '' },
    ] : content.expiry ? [expires((each) => then(each).expires_at_ms, (each) => then(each).rule, at)] : []),
  ];
  return muster.table(columns, partitions);
}

function expires(when, rule, at) {
  return { name: 'expires', title: 'Expires', wide: true, cell: (each) => muster.h('span', { title: rule(each) || '' }, muster.ago(when(each), at)) };
}

function members(content) {
  const there = content.timeline.members.filter((member) => member.bars[member.bars.length - 1].to_ms === null);
  if (!there.length) return null;
  const last = (member) => member.bars[member.bars.length - 1];
  const since = (member) => {
    let place = member.bars.length - 1;
    while (place && member.bars[place - 1].to_ms === member.bars[place].from_ms) place -= 1;
    return member.bars[place].from_ms;
  };
  const columns = [
    { title: 'Client', cell: (member) => member.client_id || muster.NONE },
    { title: 'Host', cell: (member) => member.client_host || muster.NONE },
    { title: 'Partitions', number: true, cell: (member) => muster.number(last(member).partitions) },
    { title: 'Has', wide: true, cell: (member) => last(member).assignment || muster.NONE },
    { title: 'Since', wide: true, cell: (member) => muster.ago(since(member), content.at_ms) },
    { title: 'Static name', wide: true, cell: (member) => member.instance_id || muster.NONE },
    { title: 'Member id', wide: true, cell: (member) => muster.h('span', { class: 'id' }, member.member_id) },
  ];
  return muster.h('section', {}, muster.h('h2', {}, `Members (${there.length})`), muster.table(columns, there));
}
