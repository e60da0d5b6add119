// An OpenID Connect provider for tests, which begins anew with other keys, claims or delays by POST /control.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Provider } from "oidc-provider";

let state = {};
let answer = (request, response) => response.writeHead(503).end();
const requests = [];

const server = http.createServer(async (request, response) => {
  if (request.url === "/control" && request.method === "POST") {
    let text = "";
    for await (const piece of request) text += piece;
    begin({ ...state, ...JSON.parse(text) });
    return response.writeHead(204).end();
  }
  if (request.url === "/control") return response.end(JSON.stringify(requests.splice(0)));
  requests.push(request.url);
  if (state.delay_s && request.method === "GET") await sleep(1000 * state.delay_s);
  return answer(request, response);
});

function begin(changed) {
  state = changed;
  const provider = new Provider(state.issuer, {
    jwks: { keys: state.keys },
    clients: [
      {
        client_id: state.client,
        client_secret: state.is_public ? undefined : "secret",
        grant_types: state.is_public ? ["authorization_code"] : ["client_credentials", "authorization_code"],
        redirect_uris: state.redirect_uris ?? [],
        response_types: state.redirect_uris ? ["code"] : [],
        post_logout_redirect_uris: state.post_logout_redirect_uris ?? [],
        token_endpoint_auth_method: state.is_public ? "none" : "client_secret_basic",
      },
    ],
    clientDefaults: { id_token_signed_response_alg: state.algorithm },
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "ES256", "EdDSA"] },
    ttl: { ClientCredentials: () => state.ttl_s, IdToken: () => state.ttl_s },
    claims: { openid: ["sub", "preferred_username", "groups"] },
    conformIdTokenClaims: false, // so that the ID token has them
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...state.claims }) }),
    extraTokenClaims: () => state.claims,
    cookies: { keys: ["of a test"] },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: Boolean(state.redirect_uris) }, // forms for a name and for consent
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: "sql",
          audience: resource,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: state.algorithm } },
        }),
      },
    },
  });
  answer = provider.callback();
}

server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  state = { issuer, client: "fusion", algorithm: "RS256", ttl_s: 600, claims: {}, delay_s: 0 };
  console.log(issuer);
});
process.stdin.resume().on("end", () => process.exit(0)); // the test is gone
