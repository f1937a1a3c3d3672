-- Asks quotabell whether a request may proceed: haproxy.cfg.

local AUTHORIZE = "http://127.0.0.1:9475/v1/authorize" -- "listen quotabell", which adds the token
local IF_UNANSWERED = "proceed" -- fails open; "local IF_UNANSWERED = 'refuse'" fails closed

-- API key -> subject
local SUBJECTS = { ["key-of-alice"] = "alice", ["key-of-bob"] = "bob" }

local function refuse(txn, status, answer)
  local reply = txn:reply({ status = status })
  for _, name in ipairs({ "content-type", "ratelimit", "ratelimit-policy", "retry-after" }) do
    if answer.headers[name] then reply:add_header(name, answer.headers[name][0]) end
  end
  reply:set_body(answer.body)
  txn:done(reply)
end

core.register_action("quota", { "http-req" }, function(txn)
  local subject = SUBJECTS[txn.sf:req_hdr("x-api-key")]
  if not subject then return refuse(txn, 401, { headers = {}, body = "" }) end
  txn.http:req_set_header("x-quota-subject", subject) -- for the API

  local answer = core.httpclient():get({
    url = AUTHORIZE,
    headers = { ["x-quota-subject"] = { subject } },
  })
  local headers = answer.headers or {}
  local is_problem = headers["content-type"] and headers["content-type"][0] == "application/problem+json"

  -- 400 is an invalid subject, 503 with a problem comes from check.on_error = "deny". Other errors are no answer.
  if answer.status == 429 or answer.status == 400 or (answer.status == 503 and is_problem) then
    refuse(txn, answer.status, answer)
  elseif answer.status == 200 then
    if headers["ratelimit"] then
      txn:set_var("txn.quota_limit", headers["ratelimit"][0])
      txn:set_var("txn.quota_policy", headers["ratelimit-policy"][0])
    end
  elseif IF_UNANSWERED == "refuse" then
    refuse(txn, 503, { headers = { ["retry-after"] = { [0] = "1" } }, body = "" })
  end
end)
