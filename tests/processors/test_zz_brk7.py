import urllib.request, json
from tests.processors.test_fleet import fleet, go_round, loops_of, text_of, running_worker, wait_until, open_log, find_drift, MakeLog
import pytest
pytestmark = [pytest.mark.kafka]
import urllib.error, urllib.parse
def test_it(make_fresh_log: MakeLog) -> None:
    log=make_fresh_log(partitions=2)
    with running_worker(log), fleet(log,place='f1') as a, fleet(log,place='f2') as b:
        u=[a.wait_ready(),b.wait_ready()]
        c=open_log(log.url,settings=log.settings)
        ids=[]
        for k in range(6):
            ids.append(go_round(c).session_id)
            if k==2: b.process.kill()
        def loops():
            n=[len(loops_of(c,i)) for i in ids]; return all(n) and n
        wait_until(loops,timeout_s=60) if True else None
        with fleet(log,place='f2') as b2:
            u2=b2.wait_ready(); import time; time.sleep(3)
            n=[len(loops_of(c,i)) for i in ids]; print('LOOPS',n); assert n==[1]*6
            for base in (u[0],u2):
                for q in ('','?by=tool','?by=x','?by=%00','?minutes=-1','?size=1e99','?limit=-1','?limit='+'9'*5000,'?since=nan','?name=%ff','?'+'a'*60000,'?by=tool&by=agent','?since=9999999999999','?window=60/0','?length_s=0','?every_s=0','/../x'):
                    for p in ('/fleet/windows','/fleet/loops'):
                        try:
                            with urllib.request.urlopen(base+p+q,timeout=10) as r: code=r.status; body=r.read()
                        except urllib.error.HTTPError as e: code=e.code; body=e.read()
                        except Exception as e: code=repr(e)[:80]; body=b''
                        print('Q',p,q[:30],code,body[:90])
                print('READY',text_of(base+'/readyz')[:100])
            print('METRICS',len(text_of(u2+'/metrics')))
        print('DRIFT',find_drift)
