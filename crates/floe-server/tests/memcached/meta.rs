//! The meta commands: every flag, every error.

use crate::support::{PATIENCE, Rig, rig, rig_on_flash};

fn both(test: impl Fn(&Rig)) {
    test(&rig());
    test(&rig_on_flash());
}

#[test]
fn getting() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("mg a\nmg a v k Oabc\nmg a v q\n", "EN\nEN ka Oabc\n");
        client.expect("set a 5 0 3\nabc\n", "STORED\n");
        rig.flush();
        let version = client.version("a");
        client.expect("mg a\n", "HD\n");
        client.expect("mg a v\n", "VA 3\nabc\n");
        client.expect(
            "mg a t v s f c k O123 q\n",
            &format!("VA 3 t-1 s3 f5 c{version} ka O123\nabc\n"),
        );
        client.expect(
            "set b 0 0 1\nx\nmg b h l u\nmg b h\nmg b h\n",
            "STORED\nHD h0 l0\nHD h0\nHD h1\n",
        );
        client.expect_left(
            "mg a T100 t\nmg a t T0 t2\n",
            "HD t{left}\nCLIENT_ERROR duplicate flag\n",
            100,
        );
        client.expect("mg a v v\n", "CLIENT_ERROR duplicate flag\n");
        client.expect("mg a z\n", "CLIENT_ERROR invalid flag\n");
        client.expect(
            "mg a Tx\n",
            "CLIENT_ERROR bad token in command line format\n",
        );
        client.expect("mg\n", "ERROR\n");
        client.expect(
            "mg a O1234567890123456789012345678901234567890\n",
            "CLIENT_ERROR opaque token too long\n",
        );
        client.expect(
            "mg a 1 2 3 4 5 6 7 8 9 a b c d e f g h i\n",
            "CLIENT_ERROR options flags are too long\n",
        );
    });
}

#[test]
fn base64_keys() {
    both(|rig| {
        let mut client = rig.client();
        // "a b", and bytes that cannot occur in a line.
        client.expect("ms YSBi 2 b k\nhi\n", "HD kYSBi b\n");
        client.expect("ms AAECDQog 2 b\nyo\n", "HD\n");
        rig.flush();
        client.expect("mg YSBi b k v\n", "VA 2 kYSBi b\nhi\n");
        client.expect("mg AAECDQog b v\n", "VA 2\nyo\n");
        client.expect("mg YSBi v\n", "EN\n");
        client.expect("me YSBi\n", "EN\n");
        client.expect("mg ??? b\n", "CLIENT_ERROR error decoding key\n");
        client.expect("md AAECDQog b q\nmg AAECDQog b k\n", "EN kAAECDQog b\n");
    });
}

#[test]
fn setting() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("ms a 2 T0 F7 k Oop\nhi\n", "HD ka Oop\n");
        rig.flush();
        client.expect("mg a f v\n", "VA 2 f7\nhi\n");
        client.expect("ms a 2 ME\nhi\n", "NS\n");
        client.expect("ms b 2 MR\nhi\n", "NS\n");
        client.expect("ms b 2 MA\nhi\n", "NS\n");
        client.expect(
            "ms a 1 MA\n!\nms a 1 MP q\n<\nmg a v f\n",
            "HD\nVA 4 f7\n<hi!\n",
        );
        let version = client.version("a");
        client.expect(&format!("ms a 1 C{} c\nx\n", version + 1), "EX c0\n");
        let response = client.ask(format!("ms a 1 C{version} c\r\nx\r\n"));
        let new = client.version("a");
        assert_eq!(
            String::from_utf8(response).unwrap(),
            format!("HD c{new}\r\n")
        );
        client.expect("ms none 1 C5\nx\n", "NF\n");
        client.expect("ms a\n", "CLIENT_ERROR bad command line format\n");
        client.expect("ms\n", "ERROR\n");
        client.expect("ms a -1\n", "CLIENT_ERROR bad command line format\n");
        // The value is skipped, so it is not parsed as a command.
        client.expect(
            "ms a 3 MZ\nabc\n",
            "CLIENT_ERROR invalid mode for ms M token\n",
        );
        client.expect(
            "ms a 3 Msomething\nabc\n",
            "CLIENT_ERROR incorrect length for M token\n",
        );
        client.expect("ms a 3 Fx\nabc\n", "CLIENT_ERROR bad command line format\n");
        client.expect("ms a 3 q q\nabc\n", "CLIENT_ERROR duplicate flag\n");
        client.expect(
            "ms a 3 Cx\nabc\n",
            "CLIENT_ERROR bad token in command line format\n",
        );
        client.expect("ms a 2 q\nabcd\n", "CLIENT_ERROR bad data chunk\nERROR\n");
    });
}

#[test]
fn deleting_and_serving_stale() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("md a k O1\nmd a q\n", "NF ka O1\nNF\n");
        client.expect("ms a 1\nx\nmd a C1\nmd a q\nmg a\n", "HD\nEX\nEN\n");
        client.expect("ms a 1\nx\n", "HD\n");
        let before = client.version("a");
        client.expect("md a I T30\n", "HD\n");
        rig.flush();
        assert!(client.version("a") > before);
        // The read of the version was the first read, so it won.
        client.expect_left("mg a v t\n", "VA 1 t{left} Z X\nx\n", 30);
        client.expect("md a I\nmg a v\nmg a v\n", "HD\nVA 1 X W\nx\nVA 1 Z X\nx\n");
        // An older version is stored as stale, if the request allows that.
        client.expect(
            &format!("ms a 1 C{before} I\ny\nmg a v\n"),
            "HD\nVA 1 Z X\ny\n",
        );
        let now = client.version("a");
        client.expect(&format!("ms a 1 C{now}\nz\nmg a v\n"), "HD\nVA 1\nz\n");
        client.expect("md a z\n", "CLIENT_ERROR invalid or duplicate flag\n");
        client.expect("md\n", "ERROR\n");
    });
}

#[test]
fn one_client_refills() {
    both(|rig| {
        let mut client = rig.client();
        client.expect_left("mg a N30 v t\n", "VA 0 t{left} W\n\n", 30);
        rig.flush();
        client.expect("mg a N30 v\n", "VA 0 Z\n\n");
        client.expect("ms a 1 T100\nx\nmg a R30 v\n", "HD\nVA 1\nx\n");
        client.expect("mg a R300 v\nmg a R300 v\n", "VA 1 W\nx\nVA 1 Z\nx\n");
    });
}

#[test]
fn counting() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("ma n\nma n k O1\n", "NF\nNF kn O1\n");
        client.expect("ma n N0 J13 v t\n", "VA 2 t-1\n13\n");
        rig.flush();
        client.expect("ma n v\n", "VA 2\n14\n");
        client.expect("ma n MD D4 v\n", "VA 2\n10\n");
        client.expect("ma n M- D100 v\n", "VA 1\n0\n");
        client.expect_left(
            "ma n MI D7 q\nma n M+ D1 T50 v t\n",
            "VA 1 t{left}\n8\n",
            50,
        );
        client.expect("ma n C1\n", "EX\n");
        client.expect("ma n MX\n", "CLIENT_ERROR invalid mode for ma M token\n");
        client.expect("ma n Dx\n", "CLIENT_ERROR invalid or duplicate flag\n");
        client.expect(
            "ms w 1\nx\nma w\n",
            "HD\nCLIENT_ERROR cannot increment or decrement non-numeric value\n",
        );
        client.expect("ma\n", "ERROR\n");
    });
}

#[test]
fn debugging_and_noop() {
    let rig = rig();
    let mut client = rig.client();
    client.expect("me a\nme\n", "EN\nCLIENT_ERROR bad command line format\n");
    client.expect("set a 0 100 3\nabc\n", "STORED\n");
    let response = String::from_utf8(client.ask("me a\r\n")).unwrap();
    assert!(
        response.ends_with(" fetch=no cls=1 size=63\r\n"),
        "{response}"
    );
    // Time passes during the test; the units are memcached's.
    let seconds = |from: &str, to: &str| -> i64 {
        let rest = response.split_once(from).expect("the field is there").1;
        rest.split_once(to)
            .expect("the next field is there")
            .0
            .parse()
            .unwrap()
    };
    let passed = 0..=PATIENCE.as_secs() as i64;
    assert!(
        passed.contains(&(seconds("ME a exp=", " la=") + 100)),
        "{response}"
    );
    assert!(passed.contains(&seconds(" la=", " cas=")), "{response}");
}
