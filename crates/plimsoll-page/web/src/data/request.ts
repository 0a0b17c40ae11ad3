// Requests to the server of the page. Every path is relative to the directory of the page.

const HOME = new URL("./", location.href);

/** An answer with a status other than 200. */
export class StatusError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Returns the address of a page; `path` begins at the directory of this page. */
export function address(path: string, query: Record<string, string | number | undefined> = {}): string {
  const url = new URL(path, HOME);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

async function request(url: string, timeout: number, signal?: AbortSignal): Promise<Response> {
  const limit = AbortSignal.timeout(timeout * 1000);
  const both = new AbortController();
  const stop = () => both.abort();
  limit.addEventListener("abort", stop);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  let response: Response;
  try {
    response = await fetch(url, { cache: "no-store", signal: both.signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error(limit.aborted ? `no answer within ${timeout} s` : "the server does not answer");
  }
  if (!response.ok) {
    const text = (await response.text()).slice(0, 2000).trim();
    throw new StatusError(response.status, text === "" ? `status ${response.status}` : text);
  }
  return response;
}

/** Returns the bytes of a page. */
export async function getBytes(url: string, timeout = 30, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  const response = await request(url, timeout, signal);
  return new Uint8Array(await response.arrayBuffer());
}

/** Returns the text of a page. */
export async function getText(url: string, timeout = 30): Promise<string> {
  return (await request(url, timeout)).text();
}

/** Returns the JSON value of a page. */
export async function getJson<T>(url: string, timeout = 30): Promise<T> {
  const response = await request(url, timeout);
  try {
    return (await response.json()) as T;
  } catch {
    throw new Error("the answer is not JSON");
  }
}

/** Returns the text of an error. */
export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
