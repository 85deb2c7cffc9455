'use strict';
// The list of groups, one topic, findings, and what went wrong.

const FIRST_ROWS = 80, MORE_ROWS = 200, MOST_FINDINGS = 500, LATER_MS = 200;
const SEVERITY = ['OK', 'WARN', 'EXPIRING', 'REWIND', 'STALLED', 'STOPPED', 'LOSING'];
muster.views = {};

muster.summaryOf = (group, at) => {
  const since = group.since_ms === null ? null : muster.h('span', { class: 'since', title: `since ${muster.fullTime(group.since_ms)}` }, muster.duration(at - group.since_ms));
  return [muster.pill(group.verdict), group.verdict && group.verdict !== 'OK' ? since : null];
};

muster.stateNow = (now) => `${now.state || 'unknown'}, ${now.members === 1 ? '1 member' : `${muster.number(now.members)} members`}`;

const ORDERS = {
  verdict: (group) => SEVERITY.indexOf(group.verdict), group: (group) => group.group_id, lag: (group) => group.lag ?? -1,
  behind: (group) => group.lag_ms ?? -1, members: (group) => group.members ?? -1, rebalance: (group) => group.rebalanced_ms ?? -1,
  commit: (group) => group.last_commit_ms ?? -1, expires: (group) => -(group.expires_ms ?? Infinity),
  lagnow: (group) => muster.live.group(group.group_id)?.lag ?? -1, now: (group) => muster.live.group(group.group_id)?.state ?? '',
};

// A group that began after the last run.
const NOT_IN_TABLES = { overall: null, verdict: null, since_ms: null, lag: null, lag_ms: null, trend: '', members: null, state: null, rebalanced_ms: null, cause: null, last_commit_ms: null, expires_ms: null, topics: [] };

// How much of the past the trend shows: a day, or what is known where that is less.
function trendTitle({ at_ms: at, run }) {
  const known = run.first_ms === null ? Infinity : Math.max(at - run.first_ms, run.step_ms);
  return known < 86400e3 ? `Last ${muster.duration(known)}` : 'Last day';
}

muster.views.overview = (content, route) => {
  const told = muster.rows(content.groups), at = content.at_ms, live = muster.live;
  const groups = [...told, ...live.others(new Set(told.map((group) => group.group_id))).map((each) => ({ ...NOT_IN_TABLES, group_id: each.group_id }))];
  const counts = { ERR: 0, WARN: 0, OK: 0, unknown: 0 };
  let lag = 0;
  for (const group of groups) { counts[group.overall || 'unknown'] += 1; lag += group.lag || 0; }
  const body = muster.h('tbody', {});
  const found = muster.h('p', { class: 'told', role: 'status' });
  const search = muster.h('input', { type: 'search', id: 'search', placeholder: 'Search groups and topics   /', 'aria-label': 'Search groups and topics', value: route.params.q || '', autocomplete: 'off', spellcheck: 'false' });
  const chips = Object.entries(counts).map(([word, count]) => muster.h('button', {
    type: 'button', class: `chip ${{ ERR: 'err', WARN: 'warn', OK: 'ok', unknown: 'none' }[word]}`, 'aria-pressed': String(route.params.verdict === word), disabled: !count,
    onclick: () => { muster.replace({ verdict: route.params.verdict === word ? '' : word }); },
  }, muster.h('b', {}, muster.number(count)), ` ${word}`));
  const columns = [
    { name: 'verdict', title: 'Verdict', cell: (group) => muster.summaryOf(group, at) },
    { name: 'group', title: 'Group', cell: (group) => [muster.link({ page: 'group', params: { id: group.group_id } }, { class: 'row-link' }, group.group_id || '(no name)'), muster.h('span', { class: 'narrow faint' }, `${muster.number(group.lag)} records`, live.isThere() ? [', now ', live.cell(() => live.group(group.group_id), (now) => muster.number(now.lag))] : null)] },
    { name: 'behind', title: 'Behind', number: true, cell: (group) => muster.duration(group.lag_ms) },
    { name: 'lag', title: 'Lag, records', number: true, wide: true, cell: (group) => muster.number(group.lag) },
    { name: 'lagnow', title: 'Lag now', number: true, wide: true, cell: (group) => live.cell(() => live.group(group.group_id), (now) => muster.number(now.lag)) },
    { name: 'now', title: 'State now', wide: true, cell: (group) => live.cell(() => live.group(group.group_id), muster.stateNow) },
    { name: 'trend', title: trendTitle(content), wide: true, cell: (group) => muster.spark(group.trend) },
    { name: 'members', title: 'Members', number: true, wide: true, cell: (group) => [muster.number(group.members), group.state && group.state !== 'Stable' ? muster.h('span', { class: 'faint' }, ` ${group.state}`) : null] },
    { name: 'rebalance', title: 'Last rebalance', wide: true, cell: (group) => [muster.ago(group.rebalanced_ms, at), group.cause ? muster.h('span', { class: 'faint' }, ` ${group.cause}`) : null] },
    { name: 'commit', title: 'Last commit', wide: true, cell: (group) => muster.ago(group.last_commit_ms, at) },
    { name: 'expires', title: 'Expires', wide: true, cell: (group) => muster.ago(group.expires_ms, at) },
  ].filter((column) => (content.is_now || !['commit', 'expires'].includes(column.name)) && (live.isThere() || !['lagnow', 'now'].includes(column.name)));
  for (const column of columns) {
    if (!ORDERS[column.name]) continue;
    const isBy = route.params.sort === column.name;
    column.head = () => muster.h('button', { type: 'button', class: 'sort', 'data-sort': column.name, 'aria-label': `sort by ${column.title}`,
      onclick: () => muster.replace({ sort: column.name, up: isBy && !route.params.up ? '1' : '' }) }, column.title, isBy ? (route.params.up ? ' ▲' : ' ▼') : '');
  }
  let shown = [];
  const more = (count) => { const from = body.childElementCount; body.append(...shown.slice(from, from + count).map((group) => muster.tableRow(columns, group))); };
  muster.showRows = (count) => more(Math.max(count - body.childElementCount, 0));
  const show = () => {
    shown = chosen(groups, route.params);
    body.replaceChildren();
    more(FIRST_ROWS);
    found.textContent = shown.length === groups.length ? `${muster.number(groups.length)} groups, ${muster.number(lag)} records behind in all.` : `${muster.number(shown.length)} of ${muster.number(groups.length)} groups.`;
  };
  search.addEventListener('input', () => { route.params.q = search.value; muster.remember(route); show(); });
  show();
  const table = muster.table(columns, [], { class: 'groups' });
  table.tBodies[0].replaceWith(body);
  const end = muster.h('div', { class: 'end' });
  new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) more(MORE_ROWS); }, { rootMargin: '600px' }).observe(end);
  return [muster.h('div', { class: 'bar-top' }, muster.h('div', { class: 'chips', role: 'group', 'aria-label': 'Only groups with this verdict' }, chips), search, found), table, end];
};

function chosen(groups, params) {
  const words = (params.q || '').toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (group) => { const text = `${group.group_id}\n${group.topics.join('\n')}\n${group.verdict || ''}`.toLowerCase(); return words.every((word) => text.includes(word)); };
  let found = groups.filter((group) => (!words.length || fits(group)) && (!params.verdict || (group.overall || 'unknown') === params.verdict));
  const by = Object.hasOwn(ORDERS, params.sort) && ORDERS[params.sort];
  if (by) {
    const direction = (params.up ? 1 : -1) * (params.sort === 'group' ? -1 : 1);
    const compared = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    found = found.map((group) => [by(group), group]).sort((a, b) => direction * compared(a[0], b[0]) || compared(a[1].group_id, b[1].group_id)).map((pair) => pair[1]);
  }
  return found;
}

muster.findingList = (list, at, withGroup = true) => {
  const findings = muster.rows(list);
  if (!findings.length) return muster.h('p', { class: 'faint' }, 'Nothing was found.');
  const left = findings.length - MOST_FINDINGS;
  return muster.h('ul', { class: 'findings' }, findings.slice(0, MOST_FINDINGS).map((each) => muster.h('li', { class: { error: 'err', warning: 'warn' }[each.severity] || 'info' },
    muster.h('div', {}, muster.h('span', { class: `pill ${{ error: 'err', warning: 'warn' }[each.severity] || 'info'}` }, each.severity), ' ', muster.h('b', {}, each.kind), ' ',
      withGroup && each.group_id !== null ? muster.link({ page: 'group', params: { id: each.group_id } }, { class: 'row-link' }, each.group_id) : null, ' ',
      each.topic !== null ? muster.link({ page: 'topic', params: { name: each.topic } }, {}, each.partition === null ? each.topic : `${each.topic}-${each.partition}`) : null, ' ',
      each.since_ms !== null ? muster.h('span', { class: 'faint' }, 'since ', muster.ago(each.since_ms, at)) : null),
    muster.h('p', {}, each.sentence), each.what_to_do ? muster.h('p', { class: 'todo' }, each.what_to_do) : null,
    each.evidence ? muster.h('details', {}, muster.h('summary', {}, 'Evidence'), muster.h('pre', {}, each.evidence)) : null)), left > 0 ? muster.h('li', {}, `${muster.number(left)} more are not shown here; findings.json has all.`) : null);
};

function noteOf(content) { return content.findings_note ? muster.h('p', { class: 'faint' }, content.findings_note) : null; }

// Findings of a group or topic. Those of a past moment are derived from history, which may take seconds: they come later.
muster.findingsOf = (content, params, fits, withGroup = true) => {
  const section = (...children) => muster.h('section', { class: 'found' }, muster.h('h2', {}, 'Findings'), ...children);
  if (content.findings_trouble) return section(muster.h('p', { role: 'alert' }, content.findings_trouble));
  if (content.findings) return content.findings.rows.length ? section(noteOf(content), muster.findingList(content.findings, content.at_ms, withGroup)) : null;
  const waiting = section(muster.h('p', { class: 'faint' }, 'What was found then is being worked out …'));
  setTimeout(async () => {
    if (!waiting.isConnected) return; // another moment is shown by now
    const found = await muster.source.load({ page: 'findings', params: { at: String(content.at_ms), ...params } }, muster.whileShown());
    if (!found || !waiting.isConnected) return;
    const list = found.findings || { columns: [], rows: [] }, named = (row) => Object.fromEntries(list.columns.map((name, place) => [name, row[place]]));
    Object.assign(content, { findings: { columns: list.columns, rows: list.rows.filter((row) => fits(named(row))) }, findings_trouble: found.sentence, expiry: found.expiry });
    muster.redraw();
  }, LATER_MS);
  return waiting;
};

muster.views.findings = (content) => [muster.h('h1', {}, 'Findings'),
  noteOf(content), muster.findingList(content.findings, content.at_ms)];

muster.views.topic = (content) => {
  const readers = muster.rows(content.readers), partitions = muster.rows(content.partitions), at = content.at_ms, live = muster.live;
  const columns = [
    { name: 'verdict', title: 'Verdict', cell: (each) => muster.summaryOf(each, at) },
    { name: 'group', title: 'Group', cell: (each) => muster.link({ page: 'group', params: { id: each.group_id } }, { class: 'row-link' }, each.group_id || '(no name)') },
    { title: 'Behind', number: true, cell: (each) => muster.duration(each.lag_ms) },
    { title: 'Lag, records', number: true, cell: (each) => muster.number(each.lag) },
    ...(live.isThere() ? [
      { title: 'Lag now', number: true, wide: true, cell: (each) => live.cell(() => live.group(each.group_id), (now) => muster.number(now.lag)) },
      { title: 'State now', wide: true, cell: (each) => live.cell(() => live.group(each.group_id), muster.stateNow) },
    ] : []),
    { title: 'Partitions', number: true, wide: true, cell: (each) => (each.partitions ? muster.number(each.partitions) : muster.NONE) },
  ];
  const logs = [
    { title: 'Partition', number: true, cell: (each) => each.partition },
    { title: 'Begins', number: true, cell: (each) => muster.number(each.log_start_offset) },
    { title: 'Ends', number: true, cell: (each) => muster.number(each.log_end_offset) },
    ...(live.isThere() ? [{ title: 'Ends now', number: true, wide: true, cell: (each) => live.cell(() => live.partition(each.partition), (now) => muster.number(now.log_end_offset)) }] : []),
    { title: 'Written in a day', number: true, wide: true, cell: (each) => muster.number(each.written_in_a_day) },
    { title: 'Observed', wide: true, cell: (each) => muster.ago(each.observed_at_ms, at) },
  ];
  const written = partitions.reduce((sum, each) => (each.log_end_offset === null || each.log_start_offset === null ? sum : sum + each.log_end_offset - each.log_start_offset), 0);
  return [muster.h('h1', {}, muster.h('span', { class: 'kind' }, 'topic '), content.topic),
    muster.h('p', { class: 'told' }, `${readers.length} groups read it; ${partitions.length} partitions with ${muster.number(written)} records.`),
    muster.h('section', {}, muster.h('h2', {}, 'Groups'), muster.table(columns, readers)),
    muster.h('section', {}, muster.h('h2', {}, 'Partitions'), muster.table(logs, partitions)),
    muster.findingsOf(content, {}, (each) => each.topic === content.topic)];
};

muster.views.error = (content) => [muster.h('h1', {}, 'This cannot be shown'), muster.h('p', { class: 'sentence', role: 'alert' }, content.sentence), muster.liveOnly(content)];
