'use strict';
// Where pages come from when they are served: each has an address, and beside it a twin with its content as JSON.

const PATHS = { overview: '/', group: '/group', topic: '/topic', findings: '/findings' };
const query = (params) => { const text = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== '' && value !== undefined && value !== null)).toString(); return text ? `?${text}` : ''; };

muster.source = {
  hasRanges: true,
  href: (route) => `${PATHS[route.page]}${query({ ...route.params, at: route.params.at ?? muster.at() })}`,
  route: () => ({
    page: (Object.entries(PATHS).find(([, path]) => path === location.pathname) || ['overview'])[0],
    params: Object.fromEntries(new URLSearchParams(location.search)),
  }),
  load: async (route, signal) => {
    const path = route.page === 'overview' ? '/overview' : PATHS[route.page];
    const { q, sort, up, verdict, ...asked } = route.params; // what the page itself does with its content
    try {
      const reply = await fetch(`${path}.json${query(asked)}`, { signal });
      return await reply.json();
    } catch (error) {
      if (signal && signal.aborted) return null; // another page has taken its place
      return { page: 'error', sentence: `The dashboard does not answer (${error.message}). Is it still running?` };
    }
  },
  live: async () => {
    const { page, params } = muster.source.route();
    try {
      const reply = await fetch(`/live.json${query({ page, id: params.id, name: params.name })}`);
      return (await reply.json()).live;
    } catch (error) {
      return { is_up: false, age_ms: null, sentence: `The dashboard does not answer (${error.message}). Is it still running?` };
    }
  },
  // Which run there is now; null without an answer.
  run: async () => {
    try {
      return await (await fetch('/run.json')).json();
    } catch { return null; }
  },
  moments: null,
  note: () => null,
};
