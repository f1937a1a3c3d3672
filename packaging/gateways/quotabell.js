// Asks quotabell whether a request may proceed: nginx-njs.conf.

const IF_UNANSWERED = 'proceed'; // fails open; "const IF_UNANSWERED = 'refuse';" fails closed

async function ask(r) {
    const answer = await r.subrequest('/_quota', { method: 'GET' });
    const headers = answer.headersOut;
    const isProblem = headers['Content-Type'] === 'application/problem+json';

    // 400 is an invalid subject, 503 with a problem comes from check.on_error = "deny". Other errors are no answer.
    if (answer.status === 429 || answer.status === 400 || (answer.status === 503 && isProblem)) {
        ['Content-Type', 'RateLimit', 'RateLimit-Policy', 'Retry-After'].forEach((name) => {
            if (headers[name]) {
                r.headersOut[name] = headers[name];
            }
        });
        r.return(answer.status, answer.responseText);
    } else if (answer.status === 200) {
        r.variables.quota_limit = headers['RateLimit'] || '';
        r.variables.quota_policy = headers['RateLimit-Policy'] || '';
        r.internalRedirect('@api');
    } else if (IF_UNANSWERED === 'proceed') {
        r.internalRedirect('@api');
    } else {
        r.headersOut['Retry-After'] = '1';
        r.return(503);
    }
}

export default { ask };
