-- Asks Tollgate whether HAProxy may forward a request.

local QUESTION = "http://127.0.0.1:8090/decide/forward"
local PATIENCE_MS = 5000

-- What happens while Tollgate is away: "closed" denies everything with 503, "open" lets everything
-- through, without identity and limits.
local AWAY = "closed"

-- The fields that the API gets about the caller. Add those of `forward_claims`.
local CALLER = { "x-tollgate-caller", "x-tollgate-subject", "x-tollgate-tier", "x-request-id" }

-- The fields that the client gets with the API's answer.
local LIMIT = { "limit", "remaining", "used", "reset", "resource" }

-- Fields that are about the client's connection, or the body, which stays here.
local LEFT_OUT = {
    ["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true,
    ["transfer-encoding"] = true, ["upgrade"] = true, ["x-forwarded-for"] = true,
    ["x-forwarded-host"] = true, ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true,
}

local function first(fields, name)
    local values = fields[name]
    return values and values[0]
end

local function answer(txn, status, fields, body)
    local reply = txn:reply()
    reply:set_status(status)
    for name, values in pairs(fields) do
        if name ~= "content-length" and name ~= "connection" and name ~= "date" then
            for _, value in pairs(values) do
                reply:add_header(name, value)
            end
        end
    end
    reply:set_body(body or "")
    txn:done(reply)
end

core.register_action("tollgate", { "http-req" }, function(txn)
    local fields = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        if not LEFT_OUT[name] then
            fields[name] = {}
            for _, value in pairs(values) do
                table.insert(fields[name], value)
            end
        end
    end
    fields["x-forwarded-method"] = { txn.sf:method() }
    fields["x-forwarded-host"] = { txn.sf:req_fhdr("host") }
    fields["x-forwarded-uri"] = { txn.sf:pathq() }
    -- The one field in which Tollgate is told the client's address.
    fields["x-forwarded-for"] = { txn.sf:src() }

    local decided = core.httpclient():get{ url = QUESTION, headers = fields, timeout = PATIENCE_MS }
    local is_decided = decided and decided.headers and first(decided.headers, "x-request-id")
    if not is_decided then
        if AWAY == "open" then
            return
        end
        return answer(txn, 503, { ["retry-after"] = { "1" } }, "The service is busy. Try again later.\n")
    end
    if decided.status < 200 or decided.status > 299 then
        return answer(txn, decided.status, decided.headers, decided.body)
    end
    for _, name in ipairs(CALLER) do
        local value = first(decided.headers, name)
        if value then
            txn.http:req_set_header(name, value)
        else
            txn.http:req_del_header(name)
        end
    end
    for _, name in ipairs(LIMIT) do
        local value = first(decided.headers, "x-ratelimit-" .. name)
        if value then
            txn:set_var("txn.tollgate_" .. name, value)
        end
    end
end)
